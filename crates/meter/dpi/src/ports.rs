//! Applications by their registered ports (IANA, Service Name and Transport Protocol Port Number Registry):
//! guesses, for those who ask for them.

use crate::Application;

/// The application of one of the ports, of the lower one first.
pub(crate) fn application(is_tcp: bool, mut ports: [u16; 2]) -> Option<Application> {
    ports.sort_unstable();
    ports.into_iter().find_map(|port| of_port(is_tcp, port))
}

fn of_port(is_tcp: bool, port: u16) -> Option<Application> {
    Some(match (is_tcp, port) {
        (true, 21) => Application::Ftp,
        (true, 22) => Application::Ssh,
        (true, 25 | 587) => Application::Smtp,
        (true, 80 | 8080) => Application::Http,
        (true, 110) => Application::Pop3,
        (true, 139 | 445) => Application::Smb,
        (true, 143) => Application::Imap,
        // HTTPS, SMTP, LDAP, DNS, IMAP, POP3, SIP and MQTT over TLS.
        (true, 443 | 465 | 636 | 853 | 993 | 995 | 5061 | 8883) => Application::Tls,
        (true, 1883) => Application::Mqtt,
        (true, 3306) => Application::Mysql,
        (true, 3389) => Application::Rdp,
        (true, 5432) => Application::Postgresql,
        (true, 6379) => Application::Redis,
        (false, 123) => Application::Ntp,
        (false, 161 | 162) => Application::Snmp,
        (false, 443) => Application::Quic,
        (false, 5353) => Application::Mdns,
        (false, 51_820) => Application::Wireguard,
        (_, 53) => Application::Dns,
        (_, 88) => Application::Kerberos,
        (_, 389) => Application::Ldap,
        (_, 1194) => Application::Openvpn,
        (_, 3478) => Application::Stun,
        (_, 5060) => Application::Sip,
        (_, 5355) => Application::Llmnr,
        (_, 6881) => Application::Bittorrent,
        _ => return None,
    })
}
