//! scratch
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let json = args.iter().any(|a| a == "--json");
    let files: Vec<&String> = args.iter().filter(|a| !a.starts_with("--")).collect();
    let path = std::path::Path::new(files[0]);
    let report = if files[0].ends_with(".toml") {
        dwell_audit::audit_description(path).unwrap_or_else(|e| {
            println!("{e}");
            std::process::exit(2)
        })
    } else {
        let maps = args
            .iter()
            .filter_map(|a| a.strip_prefix("--columns="))
            .flat_map(|t| dwell_audit::Mapping::parse_list(t).unwrap())
            .collect::<Vec<_>>();
        let tables: Vec<_> = files
            .iter()
            .map(|f| {
                let mut t =
                    dwell_audit::read_file(std::path::Path::new(f), &maps).unwrap_or_else(|e| {
                        println!("{e}");
                        std::process::exit(2)
                    });
                t.name = (*f).clone();
                t
            })
            .collect();
        dwell_audit::audit_tables("x", &tables, true)
    };
    if json {
        println!("{}", serde_json::to_string_pretty(&report).unwrap())
    } else {
        println!("{}", report.text())
    }
}
