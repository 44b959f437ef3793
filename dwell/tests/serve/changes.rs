//! Requests that change something: forged ones are refused.

use crate::support::{Answer, Server};

/// What a browser sends with a form of a page of this origin.
fn browser<'a>(origin: &'a str, site: &'a str) -> [(&'static str, &'a str); 4] {
    [
        ("Origin", origin),
        ("Sec-Fetch-Site", site),
        ("Sec-Fetch-Mode", "navigate"),
        ("Sec-Fetch-Dest", "document"),
    ]
}

#[test]
fn form_without_a_valid_token_is_refused_with_the_reason() {
    let (server, token) = Server::with_token();
    let cookie = server.log_in(&token);
    let page = server.send("GET /", &[("Cookie", &cookie)], "");
    let own = format!("http://{}", server.address);
    let headers = [&browser(&own, "same-origin")[..], &[("Cookie", &cookie)]].concat();
    for fields in ["", "csrf=", "csrf=x", "x=1", "csrf=a&csrf=a"] {
        let answer = server.form("/experiments", &headers, fields);
        assert_eq!(answer.status, 403, "{fields}: {answer:?}");
        assert!(answer.body.contains("reload the page"), "{}", answer.body);
    }
    let visitor = format!("csrf={}", server.get("/login").csrf());
    assert_eq!(server.form("/experiments", &headers, &visitor).status, 403, "of no session");
    let right = format!("csrf={}", page.csrf());
    assert!(server.form("/experiments", &headers, &right).is_admitted());
}

#[test]
fn foreign_origin_is_refused_even_with_the_token() {
    let (server, token) = Server::with_token();
    let cookie = server.log_in(&token);
    let fields = format!("csrf={}", server.send("GET /", &[("Cookie", &cookie)], "").csrf());
    let own = format!("http://{}", server.address);
    let other_port = "http://127.0.0.1:1";
    for (origin, site) in [
        ("http://evil.example", "cross-site"),
        ("null", "cross-site"),
        (other_port, "same-site"),
        (other_port, "same-origin"),
        (&own, "cross-site"),
    ] {
        let headers = [&browser(origin, site)[..], &[("Cookie", &cookie)]].concat();
        let answer = server.form("/logout", &headers, &fields);
        assert_eq!(answer.status, 403, "{origin} {site}: {answer:?}");
        assert!(answer.body.contains("another site"), "{}", answer.body);
    }
    assert_eq!(server.send("GET /", &[("Cookie", &cookie)], "").status, 200, "still logged in");
}

#[test]
fn every_method_but_get_and_head_is_checked() {
    let server = Server::start();
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"] {
        let answer = server.send(&format!("{method} /"), &[], "");
        assert_eq!(answer.status, 403, "{method}: {answer:?}");
    }
    assert_eq!(server.send("HEAD /", &[], "").status, 200);
}

#[test]
fn curl_on_loopback_changes_by_json() {
    let server = Server::start();
    let post = |headers: &[(&str, &str)]| server.send("POST /api/v1/runs", headers, "{}");
    assert!(post(&[("Content-Type", "application/json")]).is_admitted());
    assert!(server.send("DELETE /api/v1/runs", &[], "").is_admitted());
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let answer = post(&[("Content-Type", kind)]);
        assert_eq!(answer.status, 403, "{kind}");
        assert!(answer.body.contains("application/json"), "{}", answer.body);
    }
    assert_eq!(post(&[]).status, 403);
    assert!(server.send("POST /api/v1/experiments/x/stop", &[], "").is_admitted());
}

#[test]
fn hostile_page_cannot_reach_the_api_on_loopback() {
    let server = Server::start();
    let post = |headers: &[(&str, &str)]| -> Answer {
        let json = [("Content-Type", "application/json")];
        server.send("POST /api/v1/runs", &[&json, headers].concat(), "{}")
    };
    assert_eq!(post(&[("Origin", "http://evil.example")]).status, 403);
    assert_eq!(post(&[("Origin", "null")]).status, 403);
    assert_eq!(post(&[("Origin", "http://localhost:3000")]).status, 403);
    assert_eq!(post(&[("Sec-Fetch-Site", "cross-site")]).status, 403);
    // Browsers without these headers.
    assert_eq!(post(&[("Cookie", "x=1")]).status, 403);
    assert_eq!(post(&[("User-Agent", "Mozilla/5.0 (X11)")]).status, 403);
    let old = [("User-Agent", "Mozilla/5.0 (X11)")];
    assert_eq!(server.send("POST /api/v1/experiments/x/stop", &old, "").status, 403);
    // The question of a browser before it sends JSON to another site.
    let preflight = [("Origin", "http://evil.example"), ("Access-Control-Request-Method", "POST")];
    let answer = server.send("OPTIONS /api/v1/runs", &preflight, "");
    assert_eq!(answer.status, 403);
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[test]
fn own_script_changes_with_the_token_in_a_header() {
    let (server, token) = Server::with_token();
    let cookie = server.log_in(&token);
    let csrf = server.send("GET /", &[("Cookie", &cookie)], "").csrf();
    let own = format!("http://{}", server.address);
    let headers = [
        ("Origin", own.as_str()),
        ("Sec-Fetch-Site", "same-origin"),
        ("Cookie", &cookie),
        ("Content-Type", "application/json"),
    ];
    let post = |headers: &[(&str, &str)]| server.send("POST /api/v1/runs", headers, "{}");
    assert_eq!(post(&headers).status, 403);
    assert!(post(&[&headers[..], &[("X-Dwell-CSRF", &csrf)]].concat()).is_admitted());
}

#[test]
fn bearer_client_changes_without_a_form_token() {
    let (server, token) = Server::with_token();
    let bearer = format!("Bearer {token}");
    let post = |headers: &[(&str, &str)]| {
        let bearer = [("Authorization", bearer.as_str())];
        server.send("POST /api/v1/runs", &[&bearer, headers].concat(), "{}")
    };
    assert!(post(&[]).is_admitted());
    assert_eq!(post(&[("Origin", "http://evil.example")]).status, 403);
}

#[test]
fn pages_of_others_may_link_but_not_embed() {
    let server = Server::start();
    let get = |mode, dest| {
        let headers =
            [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", mode), ("Sec-Fetch-Dest", dest)];
        server.send("GET /", &headers, "").status
    };
    assert_eq!(get("navigate", "document"), 200);
    for (mode, dest) in [("navigate", "iframe"), ("no-cors", "image"), ("cors", "empty")] {
        assert_eq!(get(mode, dest), 403, "{mode} {dest}");
    }
}
