//! A small real MCP server over stdio, `ptcd __demo-server`, so that the demo and a first look need no other software.
//! Its figures are invented.

mod finance;

use std::{process::ExitCode, sync::Arc};

use ptc_protocol::exit;
use rmcp::{
    ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::{RequestContext, RoleServer},
};
use serde_json::{Value, json};

/// The hidden subcommand of `ptcd` that runs [`main`].
pub const SUBCOMMAND: &str = "__demo-server";

/// The tool of the demo server, without its namespace.
const TOOL: &str = "query_financials";

#[derive(Debug, Clone)]
struct DemoServer;

impl ServerHandler for DemoServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("ptc-demo", env!("CARGO_PKG_VERSION")))
            .with_instructions("Invented quarterly and annual figures of a few companies, for demonstrations.")
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, rmcp::ErrorData> {
        let tool = Tool::new(
            TOOL,
            "Financial statements of a company, newest period first. The figures are invented.",
            Arc::new(object(finance::input_schema())),
        )
        .with_raw_output_schema(Arc::new(object(finance::output_schema())));
        Ok(ListToolsResult::with_all_items(vec![tool]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, rmcp::ErrorData> {
        if request.name != TOOL {
            return Err(rmcp::ErrorData::invalid_params(format!("unknown tool: {}", request.name), None));
        }
        let arguments = request.arguments.unwrap_or_default();
        let result = match finance::query(&arguments) {
            Ok(rows) => {
                // A list wrapped in an object, with the bare list as text: what FastMCP servers answer with.
                let mut result = CallToolResult::success(vec![text(Value::from(rows.clone()).to_string())]);
                result.structured_content = Some(json!({ "result": rows }));
                result
            }
            Err(message) => CallToolResult::error(vec![text(message)]),
        };
        Ok(result.into())
    }
}

fn text(text: String) -> ContentBlock {
    ContentBlock::text(text)
}

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => JsonObject::new(),
    }
}

/// Serves on stdin and stdout until the client closes them.
#[must_use]
pub fn main() -> ExitCode {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::from(exit::FAILED);
    };
    runtime.block_on(async {
        let Ok(service) = DemoServer.serve(rmcp::transport::stdio()).await else {
            return ExitCode::from(exit::FAILED);
        };
        match service.waiting().await {
            Ok(_) => ExitCode::from(exit::OK),
            Err(_) => ExitCode::from(exit::FAILED),
        }
    })
}
