//! The main job with public servers that nobody here wrote, from npm and from PyPI.

use std::{fs, path::Path, process::Command};

use ptc_tests::{
    World,
    config::{config, stdio},
    fixtures::{node_command, python_command},
};
use serde_json::{Value, json};

fn git(repository: &Path, arguments: &[&str]) {
    let ran = Command::new("git")
        .arg("-C")
        .arg(repository)
        .args(["-c", "user.name=Tester", "-c", "user.email=tester@localhost", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

fn servers(dir: &Path) -> Vec<Value> {
    let repository = dir.join("repository");
    fs::create_dir(&repository).unwrap();
    fs::write(repository.join("figures.csv"), "day,sold\nmonday,3\ntuesday,4\n").unwrap();
    git(&repository, &["init", "-q"]);
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "-q", "-m", "Record the figures"]);
    vec![
        stdio("everything", &node_command("mcp-server-everything"), vec![json!("stdio")]),
        stdio("filesystem", &node_command("mcp-server-filesystem"), vec![json!(repository)]),
        stdio("memory", &node_command("mcp-server-memory"), vec![]),
        stdio("git", &python_command("mcp-server-git"), vec![json!("--repository"), json!(repository)]),
        stdio("time", &python_command("mcp-server-time"), vec![json!("--local-timezone"), json!("UTC")]),
    ]
}

#[test]
fn programs_mix_the_tools_of_five_public_servers() {
    let home = tempfile::tempdir().unwrap();
    let mut servers = servers(home.path());
    servers[2]["env"] = json!({"MEMORY_FILE_PATH": home.path().join("memory.jsonl")});
    let world = World::ready(&config(servers, &json!({})));
    let mut session = world.session();

    let status = world.status();
    let names: Vec<&str> = status.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["everything", "filesystem", "memory", "git", "time"]);
    assert!(status.servers.iter().all(|server| server.tools > 1), "{:#?}", status.servers);
    let table = world.ctl(&["status"]);
    assert_eq!(table.code, Some(0), "{table:?}");
    assert!(names.iter().all(|name| table.stdout.contains(name)), "{}", table.stdout);

    let names = session.call("list_callable_tools", &json!({}));
    let names: Vec<String> = serde_json::from_str(&names.text).unwrap();
    for wanted in
        ["mcp__git__git_log", "mcp__time__get_current_time", "mcp__everything__echo", "mcp__memory__read_graph"]
    {
        assert!(names.iter().any(|name| name == wanted), "{wanted} is not among {names:?}");
    }

    let repository = home.path().join("repository");
    let code = format!(
        r#"
import asyncio, csv, io
from servers import filesystem, git, memory, time, everything

REPOSITORY = {repository:?}
text, log, moment, total = await asyncio.gather(
    filesystem.read_text_file(path=REPOSITORY + "/figures.csv"),
    git.git_log(repo_path=REPOSITORY, max_count=1),
    time.convert_time(source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"),
    everything.get_sum(a=2, b=3),
)
rows = list(csv.DictReader(io.StringIO(text["content"])))
sold = sum(int(row["sold"]) for row in rows)
await memory.create_entities(entities=[
    {{"name": "week", "entityType": "report", "observations": [f"sold {{sold}}", "checked 21:00"]}},
])
graph = await memory.read_graph()
print(sold, "Record the figures" in str(log), moment["target"]["datetime"][11:16], total)
emit([entity["observations"] for entity in graph["entities"]])
"#
    );
    let result = session.program(&code);
    assert_eq!(result.output(), "7 True 21:00 The sum of 2 and 3 is 5.\n");
    assert_eq!(result.outcome()["result"], json!([["sold 7", "checked 21:00"]]));
    assert!(result.text.contains("[tool calls: 6; "), "{}", result.text);
}
