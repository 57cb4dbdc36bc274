//! The MCP server that a client sees. It answers the handshake and the list of tools from what it knows, and forwards the
//! rest; no panic and no fault of the daemon ends it.

use std::{
    borrow::Cow,
    panic::AssertUnwindSafe,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use ptc_protocol::{api::CatalogSummary, version};
use rmcp::{
    ErrorData, Peer, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult, DiscoverResult,
        ErrorCode, Implementation, InitializeRequestParams, InitializeResult, ListToolsResult, PaginatedRequestParams,
        ServerCapabilities, ServerConfig, SubscriptionFilter,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};
use tokio::sync::watch;

use crate::{
    answer::{self, Reading},
    arguments::{self, Call},
    catalog::CatalogNews,
    discovery,
    link::Link,
    run::{self, Program, ProgressSink},
    tools::{ToolKind, instructions},
};

/// How long, from the first question on, the handshake may wait in all for the map of servers. A daemon that is there sends it within milliseconds, but a
/// busy machine may need longer, and the instructions are told only once.
const HANDSHAKE_PATIENCE: Duration = Duration::from_millis(500);
/// The client's own id of a tool use, as Claude Code sends it.
const TOOL_USE_META: &str = "claudecode/toolUseId";

/// The server of one client.
#[derive(Debug)]
pub(crate) struct Shim {
    link: Link,
    /// The client, once it can be notified.
    peer: watch::Sender<Option<Peer<RoleServer>>>,
    /// When the handshake stops waiting for the map of servers.
    patient_until: OnceLock<Instant>,
}

impl Shim {
    pub(crate) fn new(link: Link) -> Self {
        Self { link, peer: watch::Sender::default(), patient_until: OnceLock::new() }
    }

    /// The map of servers, if it comes in time.
    async fn catalog(&self) -> Option<Arc<CatalogSummary>> {
        let until = *self.patient_until.get_or_init(|| Instant::now() + HANDSHAKE_PATIENCE);
        self.link.catalog_within(until.saturating_duration_since(Instant::now())).await
    }

    /// The client that is to hear of changes, once it has finished the handshake.
    pub(crate) fn peer(&self) -> watch::Receiver<Option<Peer<RoleServer>>> {
        self.peer.subscribe()
    }

    fn config(catalog: Option<&CatalogSummary>) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("ptc", version::PACKAGE).with_title("Programmatic tool calling"))
            .with_instructions(instructions(catalog))
    }

    fn introduce(&self, client: Option<&Implementation>) {
        self.link
            .introduce(|| client.map_or_else(|| "unknown".into(), |info| format!("{} {}", info.name, info.version)));
    }

    async fn answer(&self, request: CallToolRequestParams, context: &RequestContext<RoleServer>) -> CallToolResult {
        let catalog = self.link.watch().borrow().catalog.clone();
        let Some(tool) = ToolKind::find(&request.name, catalog.as_deref()) else {
            let names: Vec<_> = ToolKind::offered(catalog.as_deref()).map(ToolKind::name).collect();
            return answer::failure(unknown_tool(&request.name, &names));
        };
        let call = match arguments::parse(tool, request.arguments) {
            Ok(call) => call,
            Err(refused) => return answer::failure(refused.to_string()),
        };
        match call {
            Call::Execute { code, timeout_seconds } => {
                let client_request = context.meta.get(TOOL_USE_META).and_then(|id| id.as_str()).map(str::to_owned);
                let progress =
                    context.meta.get_progress_token().map(|token| ProgressSink { peer: context.peer.clone(), token });
                let name = context.client_info().map(|info| info.name);
                let reading = Reading::of_client(name.as_deref());
                run::run(&self.link, Program { code, timeout_seconds, client_request }, progress, reading).await
            }
            Call::Inspect(names) => discovery::inspect(&self.link, names).await,
            Call::List { query, server, detail } => discovery::list(&self.link, query, server, detail).await,
            Call::ReadOutput { program, offset, limit } => discovery::output(&self.link, &program, offset, limit).await,
        }
    }
}

/// A model that has seen the names of tools in a program or a list may call one of them directly.
fn unknown_tool(name: &str, ours: &[&str]) -> String {
    let within = match name.strip_prefix("mcp__") {
        Some(rest) if !ours.iter().any(|our| rest.ends_with(our)) => {
            format!(" Tools of servers are called inside a program: execute_program with `print(await {name}(...))`.")
        }
        _ => String::new(),
    };
    format!("Unknown tool: {name}. Tools: {}.{within}", ours.join(", "))
}

impl ServerHandler for Shim {
    fn get_info(&self) -> ServerConfig {
        Self::config(None)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        self.introduce(Some(&request.client_info));
        let mut result = self.negotiate_initialize(&request)?;
        context.peer.set_peer_info(request);
        let catalog = self.catalog().await;
        result.instructions = Some(instructions(catalog.as_deref()));
        Ok(result)
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        self.introduce(context.client_info().as_ref());
        let catalog = self.catalog().await;
        let versions = self.supported_protocol_versions();
        Ok(DiscoverResult::from_server_info(Cow::into_owned(versions), Self::config(catalog.as_deref())))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.peer.send_replace(Some(context.peer));
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.introduce(context.client_info().as_ref());
        let catalog = self.catalog().await;
        let tools = ToolKind::offered(catalog.as_deref()).map(|tool| tool.definition(catalog.as_deref()));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.introduce(context.client_info().as_ref());
        let name = request.name.clone();
        let result = tokio::select! {
            result = survive(&name, self.answer(request, &context)) => result,
            // Nobody waits for the answer; dropping the work closes its stream, which kills the program.
            () = context.ct.cancelled() => answer::failure("cancelled"),
        };
        Ok(result.into())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        // A known method comes here when its parameters are of the wrong shape.
        let known = ["initialize", "tools/call", "tools/list", "ping", "server/discover", "subscriptions/listen"];
        if known.contains(&request.method.as_str()) {
            let what = format!("invalid params for {}", request.method);
            return Err(ErrorData::invalid_params(what, None));
        }
        let method = Some(request.method.into());
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "Method not found", method))
    }

    fn accepted_subscription_filter(&self, _requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let mut news = CatalogNews::new(&self.link);
        loop {
            tokio::select! {
                () = news.changed() => {}
                () = subscription.cancelled() => return Ok(()),
            }
            if let Err(error) = subscription.sink().notify_tool_list_changed().await {
                tracing::debug!(%error, "change of tools not told");
                return Ok(());
            }
        }
    }
}

/// The work's result, also when it panics: rmcp would never answer the request.
async fn survive(tool: &str, work: impl Future<Output = CallToolResult>) -> CallToolResult {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
        answer::failure(format!("ptc-shim failed inside {tool}; whether anything was run is not known"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_of_a_server_is_told_from_a_mistyped_one_of_ours() {
        let told = |name: &str| unknown_tool(name, &["execute_program", "inspect_tool"]);
        assert_eq!(told("run"), "Unknown tool: run. Tools: execute_program, inspect_tool.");
        assert_eq!(
            told("mcp__ptc__inspect_tool"),
            "Unknown tool: mcp__ptc__inspect_tool. Tools: execute_program, inspect_tool."
        );
        assert!(told("mcp__s__t").ends_with("inside a program: execute_program with `print(await mcp__s__t(...))`."));
    }

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        let result = survive("execute_program", async { panic!("on purpose") }).await;
        assert_eq!(result.is_error, Some(true));
        assert!(format!("{result:?}").contains("failed inside execute_program"));
    }
}
