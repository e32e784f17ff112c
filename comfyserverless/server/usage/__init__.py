"""Answer who used how much: what may be asked, and how answers look as JSON and as tables for spreadsheets."""
