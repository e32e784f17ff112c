"""ComfyUI's `execution`: prompts are executed by the server; what wraps it can be imported, and is not
called."""

from comfyserverless.host.blocking import ExecutionBlocker
from comfyserverless.host.missing import missing_names, unsupported

SENSITIVE_EXTRA_DATA_KEYS = ("auth_token_comfy_org", "api_key_comfy_org")


class PromptExecutor:
    """Stand for what executes prompts: packs that replace its methods see no calls of them."""

    execute = unsupported("execution.PromptExecutor.execute")
    execute_async = unsupported("execution.PromptExecutor.execute_async")
    reset = unsupported("execution.PromptExecutor.reset")
    add_message = unsupported("execution.PromptExecutor.add_message")


validate_prompt = unsupported("execution.validate_prompt")
validate_inputs = unsupported("execution.validate_inputs")
get_input_data = unsupported("execution.get_input_data")
get_output_data = unsupported("execution.get_output_data")
map_node_over_list = unsupported("execution.map_node_over_list")
execute = unsupported("execution.execute")
recursive_execute = unsupported("execution.recursive_execute")
PromptQueue = unsupported("execution.PromptQueue")
IsChangedCache = unsupported("execution.IsChangedCache")
CacheSet = unsupported("execution.CacheSet")

__all__ = ["SENSITIVE_EXTRA_DATA_KEYS", "ExecutionBlocker", "PromptExecutor"]
__getattr__ = missing_names(__name__)
