//! Tokens, sessions and failed logins.

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;

use crate::support::{Server, make_token};

#[test]
fn nothing_but_login_and_assets_is_open_without_the_token() {
    let (server, _) = Server::with_token();
    let page = server.get("/compare?runs=a,b");
    assert_eq!(page.status, 303);
    assert_eq!(page.header("location"), Some("/login?next=/compare%3Fruns%3Da,b"));
    for path in ["/api/v1/runs", "/metrics", "/api/v1/absent"] {
        let answer = server.get(path);
        assert_eq!(answer.status, 401, "{path}");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"dwell\""));
        assert!(answer.body.contains("\"code\":\"token-missing\""), "{}", answer.body);
    }
    assert_eq!(server.send("POST /experiments", &[], "x").status, 303);
    let login = server.get("/login");
    assert_eq!(login.status, 200);
    let style = login.body.split('"').find(|part| part.ends_with("/page.css")).unwrap();
    assert_eq!(server.get(style).status, 200);
}

#[test]
fn bearer_token_opens_the_api_and_a_wrong_one_nothing() {
    let (server, token) = Server::with_token();
    let status = |value: &str| {
        let answer = server.send("GET /api/v1/runs", &[("Authorization", value)], "");
        answer.status
    };
    assert_eq!(status(&format!("Bearer {token}")), 200);
    assert_eq!(status(&format!("bearer {token}")), 200);
    for wrong in
        [format!("Bearer {}", &token[..token.len() - 1]), format!("Basic {token}"), token.clone()]
    {
        assert_eq!(status(&wrong), 401, "{wrong}");
    }
}

#[test]
fn login_form_begins_a_session_and_logout_ends_it() {
    let (server, token) = Server::with_token();
    let csrf = server.get("/login").csrf();
    let fields = format!("csrf={csrf}&token={token}&next=/runs");
    let answer = server.form("/login", &[], &fields);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/runs")), "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap();
    for part in ["HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=86400"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert!(cookie.split_once('=').unwrap().1.len() == 64, "{cookie}");

    let page = server.send("GET /", &[("Cookie", cookie)], "");
    assert_eq!(page.status, 200);
    let form = format!("csrf={}", page.csrf());
    let end = server.form("/logout", &[("Cookie", cookie)], &form);
    assert_eq!(end.status, 303);
    assert!(end.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(server.send("GET /", &[("Cookie", cookie)], "").status, 303);
}

#[test]
fn login_needs_the_form_and_leads_nowhere_else() {
    let (server, token) = Server::with_token();
    assert_eq!(server.form("/login", &[], &format!("token={token}")).status, 403);
    let csrf = server.get("/login").csrf();
    let fields = format!("csrf={csrf}&token={token}&next=//evil.example");
    assert_eq!(server.form("/login", &[], &fields).header("location"), Some("/"));
}

#[test]
fn failed_logins_are_limited() {
    let (server, token) = Server::with_token();
    let csrf = server.get("/login").csrf();
    let attempt =
        |token: &str| server.form("/login", &[], &format!("csrf={csrf}&token={token}&next=/"));
    for _ in 0..5 {
        let answer = attempt("wrong");
        assert_eq!(answer.status, 401, "{answer:?}");
        assert!(answer.body.contains("not the token"), "{}", answer.body);
    }
    let answer = attempt(&token);
    assert_eq!(answer.status, 429);
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&wait), "{wait}");
    assert!(server.wait_for_line("wrong token").contains("127.0.0.1"));
    // A right bearer token cannot be locked out; wrong ones are limited.
    let bearer = |token: &str| {
        let value = format!("Bearer {token}");
        server.send("GET /api/v1/runs", &[("Authorization", &value)], "").status
    };
    assert_eq!(bearer(&token), 200);
    assert_eq!(bearer("wrong"), 429);
}

#[test]
fn new_token_ends_sessions_and_the_old_token() {
    let (server, token) = Server::with_token();
    let cookie = server.log_in(&token);
    let new = make_token(server.data.path());
    assert_eq!(server.send("GET /", &[("Cookie", &cookie)], "").status, 303);
    let bearer = |token: &str| {
        let value = format!("Bearer {token}");
        server.send("GET /api/v1/runs", &[("Authorization", &value)], "").status
    };
    assert_eq!(bearer(&token), 401);
    assert_eq!(bearer(&new), 200);
}

#[test]
fn event_streams_end_when_the_token_changes() {
    let (server, path) = Server::with_run();
    let ends = |mut stream: TcpStream| {
        let mut rest = Vec::new();
        // Fails at the time-out of the stream.
        stream.read_to_end(&mut rest).expect("the stream ends");
    };
    let open = server.open_stream(&path);
    let token = make_token(server.data.path());
    ends(open);
    let with_token = format!("{path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nX-Rest:");
    let open = server.open_stream(&with_token);
    make_token(server.data.path());
    ends(open);
}

#[test]
fn first_token_closes_a_running_server() {
    let server = Server::start();
    assert_eq!(server.get("/").status, 200);
    assert_eq!(server.get("/login").status, 303, "no login without a token");
    make_token(server.data.path());
    assert_eq!(server.get("/api/v1/runs").status, 401);
    fs::remove_dir_all(server.data.path()).unwrap();
    assert_eq!(server.get("/api/v1/runs").status, 401, "a deleted token opens nothing");
    fs::create_dir(server.data.path()).unwrap();
}
