//! Decisions on whole requests, without sockets.

use super::*;
use crate::access::origin::Source;

fn access(config: &AccessConfig, data: &std::path::Path) -> Access {
    let address = SocketAddr::from(([127, 0, 0, 1], 8080));
    Access::new(config, data.to_owned(), address, |_| {})
}

fn open_access() -> Access {
    access(&AccessConfig::default(), std::path::Path::new("/nonexistent"))
}

fn bearer() -> Visitor {
    Visitor::Bearer(TokenHash::of("token"))
}

const CURL: Meta<'static> = Meta {
    method: &Method::POST,
    path: "/api/v1/experiments",
    authority: "127.0.0.1:8080",
    source: Source { origin: None, site: None, mode: None, dest: None, agent: Some("curl/8") },
    content_type: Some("application/json"),
    has_cookies: false,
    has_body: true,
};

#[test]
fn program_on_loopback_changes_by_json_without_a_token() {
    let access = open_access();
    let check = |meta: Meta<'_>| access.check_change(&meta, &Visitor::Anyone, None);
    assert_eq!(check(CURL), Ok(()));
    assert_eq!(check(Meta { content_type: None, has_body: false, ..CURL }), Ok(()));
    let text = Meta { content_type: Some("text/plain"), has_body: false, ..CURL };
    assert_eq!(check(text), Err(Refusal::SimpleContentType));
    assert_eq!(check(Meta { method: &Method::DELETE, content_type: None, ..CURL }), Ok(()));
    for content_type in [None, Some("text/plain"), Some("multipart/form-data; boundary=x")] {
        assert_eq!(check(Meta { content_type, ..CURL }), Err(Refusal::SimpleContentType));
    }
    assert_eq!(check(Meta { path: "/experiments", ..CURL }), Err(Refusal::CsrfToken));
}

#[test]
fn browser_needs_the_form_token_for_the_api_too() {
    let access = open_access();
    let own = Source { origin: Some("http://127.0.0.1:8080"), ..Source::default() };
    let token = access.csrf.token(None);
    let old = Source { agent: Some("Mozilla/5.0 (X11)"), ..Source::default() };
    let metas = [
        Meta { source: own, ..CURL },
        Meta { source: old, has_body: false, content_type: None, ..CURL },
        Meta { has_cookies: true, ..CURL },
    ];
    for meta in metas {
        let check = |sent| access.check_change(&meta, &Visitor::Anyone, sent);
        assert_eq!(check(None), Err(Refusal::CsrfToken));
        assert_eq!(check(Some("x")), Err(Refusal::CsrfToken));
        assert_eq!(check(Some(&token)), Ok(()));
    }
}

#[test]
fn foreign_page_changes_nothing_even_with_a_token() {
    let access = open_access();
    let token = access.csrf.token(None);
    let foreign = [
        Source { origin: Some("http://evil.example"), ..Source::default() },
        Source { origin: Some("null"), ..Source::default() },
        Source { origin: Some("http://127.0.0.1:9090"), ..Source::default() },
        Source { site: Some("cross-site"), ..Source::default() },
    ];
    for source in foreign {
        let meta = Meta { source, ..CURL };
        for visitor in [Visitor::Anyone, bearer()] {
            let check = access.check_change(&meta, &visitor, Some(&token));
            assert_eq!(check, Err(Refusal::ForeignOrigin), "{source:?}");
        }
    }
}

#[test]
fn bearer_without_cookies_needs_no_form_token() {
    let access = open_access();
    assert_eq!(access.check_change(&CURL, &bearer(), None), Ok(()));
    let cookies = Meta { has_cookies: true, ..CURL };
    let check = access.check_change(&cookies, &bearer(), None);
    assert_eq!(check, Err(Refusal::CsrfToken));
}

#[test]
fn form_token_of_one_session_is_invalid_in_another() {
    let access = open_access();
    let form = Meta { path: "/experiments", has_cookies: true, ..CURL };
    let token = access.csrf.token(Some(&[1; 32]));
    let check = |id| {
        access.check_change(&form, &Visitor::Session(id, TokenHash::of("token")), Some(&token))
    };
    assert_eq!(check([1; 32]), Ok(()));
    assert_eq!(check([2; 32]), Err(Refusal::CsrfToken));
}

#[test]
fn deleted_token_does_not_open_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let access = access(&AccessConfig::default(), dir.path());
    assert!(!access.demands_token());
    let token = create_token(dir.path()).unwrap().text;
    assert!(access.demands_token(), "as soon as one exists");
    let address = IpAddr::from([127, 0, 0, 1]);
    assert!(access.log_in(address, &token).is_ok());
    std::fs::remove_dir_all(dir.path()).unwrap();
    assert!(access.demands_token());
    assert_eq!(access.visitor(&HeaderMap::new(), address), Err(Refusal::NoToken));
    assert_eq!(access.log_in(address, &token), Err(Refusal::WrongToken));
}

#[test]
fn flood_of_wrong_tokens_does_not_lengthen_the_wait() {
    let dir = tempfile::tempdir().unwrap();
    let access = access(&AccessConfig::default(), dir.path());
    let token = create_token(dir.path()).unwrap().text;
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, header::HeaderValue::from_static("Bearer wrong"));
    let address = IpAddr::from([192, 0, 2, 1]);
    for _ in 0..1_000 {
        assert!(access.visitor(&headers, address).is_err());
    }
    let Err(Refusal::TooManyAttempts(wait)) = access.log_in(address, &token) else {
        panic!("the address has to wait");
    };
    assert!(wait <= std::time::Duration::from_secs(30), "{wait:?}");
    assert!(access.log_in(IpAddr::from([192, 0, 2, 2]), &token).is_ok(), "others need not wait");
}

#[test]
fn requests_have_exactly_one_authority() {
    let headers = |hosts: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, header::HeaderValue::from_static(host));
        }
        headers
    };
    assert_eq!(authority(&headers(&["a"]), None), Some("a"));
    assert_eq!(authority(&headers(&["a"]), Some("A")), Some("a"));
    assert_eq!(authority(&headers(&[]), Some("a")), Some("a"));
    assert_eq!(authority(&headers(&[]), None), None);
    assert_eq!(authority(&headers(&["a", "a"]), None), None);
    assert_eq!(authority(&headers(&["a"]), Some("b")), None);
}

#[test]
fn cookie_is_found_among_others() {
    let mut headers = HeaderMap::new();
    let value = "other=1; dwell-8080=abc;xdwell-8080=no";
    headers.insert(header::COOKIE, header::HeaderValue::from_static(value));
    assert_eq!(cookie(&headers, "dwell-8080"), Some("abc"));
    assert_eq!(cookie(&headers, "dwell-80"), None);
}
