package attacks

import (
	"net/http"
	"slices"
)

const (
	podOfA     = "/api/v1/namespaces/team-a/pods/open-0"
	podsOfANow = "/api/v1/namespaces/team-a/pods" // which is forwarded
	onlyOpen   = configMapsOfA + "&fieldSelector=metadata.name%3Dopen"
	// whoAmI is answered with the whole user.
	whoAmI     = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	reviews    = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	asJSON     = "Content-Type: application/json"
	reviewBody = `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":"list","resource":"pods","namespace":"team-a"}}}`
	whoBody    = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
)

// ask who somebody is.
func askWho(name string, header ...string) attack {
	return attack{name: name, method: http.MethodPost, target: whoAmI, header: append([]string{asJSON}, header...), body: whoBody}
}

// goodCerts are users whom both servers know by a certificate.
var goodCerts = []string{
	adminCert, readerCert, identifiedCert, developerCert, namedCert, accountCert, memberCert, nobodyCert, outsiderCert,
	frontClientCert,
}

// podReaderCerts may list what podsOfA is.
var podReaderCerts = []string{adminCert, readerCert, identifiedCert, developerCert, memberCert}

// certificateAttacks come with certificates, and with what does not go with them.
func certificateAttacks() []attack {
	return slices.Concat(knownByCertificate(), certificateAndToken(), certificateAndClaims(), unbelievedCertificates())
}

// knownByCertificate is all that one can do, by those who have nothing but a certificate.
func knownByCertificate() []attack {
	return by(goodCerts,
		attack{name: "list all", target: pods, hit: []string{adminCert}},
		attack{name: "list", target: podsOfA, hit: podReaderCerts},
		attack{name: "list another namespace", target: podsOfB, hit: []string{adminCert}},
		attack{name: "list by name", target: onlyOpen, hit: []string{adminCert, namedCert}},
		attack{name: "list beside the name", target: configMapsOfA, hit: []string{adminCert}},
		attack{name: "list as it is now", target: podsOfANow},
		attack{name: "get", target: podOfA},
		attack{name: "watch", target: podsOfA + "&watch=1&timeoutSeconds=1", as: []string{readerCert, memberCert, accountCert}},
		attack{name: "discovery", target: "/api/v1", as: []string{readerCert, outsiderCert}},
		attack{name: "version", target: "/version", as: []string{readerCert, outsiderCert}},
		askWho("who am I"),
		attack{name: "may I", method: http.MethodPost, target: reviews, header: []string{asJSON}, body: reviewBody},
		attack{
			name: "create what is there", method: http.MethodPost, target: "/api/v1/namespaces/team-a/configmaps", header: []string{asJSON},
			body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"open"}}`,
		},
		attack{name: "delete, but not really", method: http.MethodDelete, target: "/api/v1/namespaces/team-a/configmaps/open?dryRun=All"},
		attack{name: "exec without an upgrade", method: http.MethodPost, target: podOfA + "/exec?command=x", as: []string{adminCert, readerCert}},
	)
}

// certificateAndToken is a certificate and a token, of two users. The certificate's counts.
func certificateAndToken() []attack {
	both := []string{
		with(readerCert, admin), with(readerCert, stranger), with(adminCert, reader), with(nobodyCert, admin),
	}
	out := by(both,
		attack{name: "two users list all", target: pods, hit: []string{with(adminCert, reader)}},
		attack{name: "two users list", target: podsOfA, hit: []string{
			with(readerCert, admin), with(readerCert, stranger), with(adminCert, reader),
		}},
		attack{name: "two users get", target: podOfA},
		askWho("two users are who"),
	)
	for name, lines := range map[string][]string{
		"nothing in Authorization": {"Authorization:"},
		"no token":                 {"Authorization: Bearer"},
		"basic":                    {"Authorization: Basic YWRtaW46YWRtaW4="},
		"two tokens":               {"Authorization: Bearer {token:admin}", "Authorization: Bearer {token:alice}"},
		"a proxy's token":          {"Proxy-Authorization: Bearer {token:admin}"},
		"a token in a protocol":    {"Sec-WebSocket-Protocol: {bearer:admin}, x"},
	} {
		out = append(out,
			attack{name: "with " + name + ", list", target: podsOfA, header: lines, as: []string{readerCert}, hit: []string{readerCert}, bare: true},
			attack{name: "with " + name + ", list all", target: pods, header: lines, as: []string{readerCert}, bare: true},
			attack{name: "with " + name + ", get", target: podOfA, header: lines, as: []string{readerCert}, bare: true})
	}
	return out
}

// certificateAndClaims is a certificate, and headers that say something else.
func certificateAndClaims() []attack {
	var out []attack
	// Whom listproxy states cannot impersonate: the API server would judge listproxy's right to.
	for name, line := range map[string]string{
		"user":             "Impersonate-User: alice",
		"lower-case user":  "impersonate-user: alice",
		"upper-case user":  "IMPERSONATE-USER: alice",
		"empty user":       "Impersonate-User:",
		"oneself":          "Impersonate-User: admin",
		"group":            "Impersonate-Group: system:masters",
		"uid":              "Impersonate-Uid: x",
		"extra":            "Impersonate-Extra-Scopes: all",
		"something":        "Impersonate-Something: all",
		"nothing":          "Impersonate-: all",
		"no dash":          "Impersonate: admin",
		"with underscores": "Impersonate_User: admin",
	} {
		out = append(out, by([]string{adminCert, readerCert, with(readerCert, admin)},
			attack{name: "impersonate, " + name + ", list", target: podsOfA, header: []string{line}, want: refused, status: http.StatusForbidden},
			attack{name: "impersonate, " + name + ", get", target: podOfA, header: []string{line}, want: refused, status: http.StatusForbidden})...)
	}
	who := askWho("impersonate, and ask who", "Impersonate-User: alice")
	who.as, who.want, who.status = []string{adminCert, readerCert}, refused, http.StatusForbidden
	out = append(out, who)

	// Nobody is believed.
	for name, lines := range map[string][]string{
		"remote":    {"X-Remote-User: admin", "X-Remote-Group: system:masters", "X-Remote-Uid: 1", "X-Remote-Extra-Scopes: all"},
		"forwarded": {"X-Forwarded-User: admin", "X-Forwarded-For: 10.0.0.1", "Forwarded: for=10.0.0.1", "X-Real-Ip: 10.0.0.1"},
	} {
		as := []string{readerCert, nobodyCert, frontClientCert, reader}
		out = append(out, by(as,
			attack{name: name + " headers, list", target: podsOfA, header: lines, hit: []string{readerCert, reader}},
			attack{name: name + " headers, list all", target: pods, header: lines},
			askWho(name+" headers, ask who", lines...))...)
	}
	return out
}

// unbelievedCertificates are those that are wrong, and those whose user cannot be stated.
func unbelievedCertificates() []attack {
	out := by(badCerts,
		attack{name: "unbelieved, list", target: podsOfA, want: refusedAlike},
		attack{name: "unbelieved, list all", target: pods, want: refusedAlike},
		attack{name: "unbelieved, version", target: "/version", want: refusedAlike},
		attack{name: "unbelieved, and basic", target: podsOfA, header: []string{"Authorization: Basic YTph"}, want: refusedAlike, bare: true},
		attack{name: "unbelieved, and an empty token", target: podsOfA, header: []string{"Authorization: Bearer "}, want: refusedAlike, bare: true},
		attack{name: "unbelieved, and impersonation", target: podsOfA, header: []string{"Impersonate-User: alice"}, want: refusedAlike},
		attack{name: "unbelieved, and remote headers", target: podsOfA, header: []string{"X-Remote-User: alice"}, want: refusedAlike},
	)
	for _, bad := range badCerts {
		good := with(bad, reader)
		users := []string{good, with(bad, stranger)}
		out = append(out, by(users,
			attack{name: "unbelieved, a token lists", target: podsOfA, hit: []string{good}},
			attack{name: "unbelieved, a token lists all", target: pods},
			attack{name: "unbelieved, a token gets", target: podOfA},
			askWho("unbelieved, a token is who"))...)
	}
	return append(out, by([]string{anonymousCert, oddCert},
		attack{name: "cannot be stated, list", target: podsOfA, want: refusedAlike},
		attack{name: "cannot be stated, list all", target: pods, want: refusedAlike},
		attack{name: "cannot be stated, get", target: podOfA, want: refusedAlike},
		attack{name: "cannot be stated, version", target: "/version", want: refused, status: http.StatusForbidden, as: []string{anonymousCert, oddCert, ungroupedCert}},
		attack{name: "cannot be stated, list as a group", target: podsOfA, want: refused, status: http.StatusForbidden, as: []string{ungroupedCert}},
	)...)
}

// certificateConnectionAttacks are those that need a Connection header.
func certificateConnectionAttacks() []attack {
	socket := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}
	spdy := []string{"Connection: Upgrade", "Upgrade: SPDY/3.1"}
	protocol := func(of string) []string {
		return append(slices.Clone(socket), "Sec-WebSocket-Protocol: "+of)
	}
	var out []attack
	// To be removed, by their name, from what is sent on with listproxy's credentials.
	for _, name := range []string{"Impersonate-User", "impersonate-group", "Impersonate-Extra-Authentication.kubernetes.io%2fcredential-Id", "Authorization", "AUTHORIZATION"} {
		for _, target := range []string{podsOfA, podOfA} {
			out = append(out, attack{
				name: "Connection: " + name + " of " + target, target: target, header: []string{"Connection: " + name}, want: refused,
				as: []string{readerCert, with(readerCert, admin), reader},
			})
		}
	}
	for _, name := range []string{"X-Remote-User", "X-Forwarded-For", "Host", "Connection", "close, X-Forwarded-For"} {
		for _, target := range []string{podsOfA, podOfA} {
			out = append(out, attack{name: "Connection: " + name + " of " + target, target: target, header: []string{"Connection: " + name}, as: []string{readerCert, reader}})
		}
	}
	out = append(out, by([]string{readerCert, adminCert, memberCert, accountCert},
		attack{name: "exec by SPDY", method: http.MethodPost, target: podOfA + "/exec?command=x&stdout=1", header: spdy, closes: true},
		attack{name: "exec by websocket", target: podOfA + "/exec?command=x&stdout=1", header: protocol("v5.channel.k8s.io"), closes: true},
		attack{name: "watch by websocket", target: podsOfA + "&watch=1&timeoutSeconds=1", header: protocol("binary.k8s.io"), closes: true},
		attack{name: "list by websocket", target: podsOfA, header: protocol("x"), closes: true},
		attack{name: "upgrade and impersonation", target: podOfA + "/exec?command=x", header: append(protocol("x"), "Impersonate-User: alice"), want: refused, status: http.StatusForbidden},
	)...)
	// A token as a protocol, which the API server reads where there is no other and the connection is
	// to be a WebSocket.
	for _, user := range []string{anonymous, stranger, readerCert, expiredCert, foreignCert, with(expiredCert, stranger)} {
		for name, of := range map[string]string{
			"alice":       "{bearer:alice}, v4.channel.k8s.io",
			"admin":       "v4.channel.k8s.io, {bearer:admin}",
			"a stranger":  "{bearer:stranger}, v4.channel.k8s.io",
			"two":         "{bearer:alice}, {bearer:admin}, x",
			"alone":       "{bearer:admin}",
			"not base64":  bearerProtocol + "!, x",
			"of nothing":  bearerProtocol + ", x",
			"upper-case":  "BASE64URL.BEARER.AUTHORIZATION.K8S.IO.eA, x",
			"other words": "x, y",
		} {
			want := answeredAsUpstream
			if user == expiredCert || user == foreignCert {
				switch name {
				case "alice", "admin", "a stranger":
				default:
					want = refusedAlike
				}
			}
			out = append(out,
				attack{name: "token as a protocol, " + name + ", list", target: podsOfA, header: protocol(of), as: []string{user}, want: want, closes: true},
				attack{name: "token as a protocol, " + name + ", list all", target: pods, header: protocol(of), as: []string{user}, want: want, closes: true},
				attack{name: "token as a protocol, " + name + ", watch", target: podsOfA + "&watch=1&timeoutSeconds=1", header: protocol(of), as: []string{user}, want: want, closes: true})
		}
	}
	return out
}

// frontProxyAttacks come with the certificate of a proxy that the API server lets say in headers who
// the caller is. listproxy believes no such proxy: its certificate is one of a CA that it does not
// know, and its headers go no further.
func frontProxyAttacks() []attack {
	var out []attack
	for name, lines := range map[string][]string{
		"nothing": nil,
		"alice":   {"X-Remote-User: alice"},
		"admin":   {"X-Remote-User: admin", "X-Remote-Group: system:masters", "X-Remote-Uid: 1", "X-Remote-Extra-Scopes: all"},
	} {
		who := askWho("a front proxy says "+name+", who", lines...)
		who.want, who.status = refused, http.StatusUnauthorized
		out = append(out, by([]string{frontCert},
			attack{name: "a front proxy says " + name + ", list", target: podsOfA, header: lines, want: refused, status: http.StatusUnauthorized},
			attack{name: "a front proxy says " + name + ", get", target: podOfA, header: lines, want: refused, status: http.StatusUnauthorized},
			who)...)
	}
	return append(out, by([]string{with(frontCert, reader), with(frontCert, stranger)},
		attack{name: "a front proxy with a token lists", target: podsOfA, hit: []string{with(frontCert, reader)}},
		attack{name: "a front proxy with a token lists all", target: pods})...)
}

// constrainedAttacks are of one who may create SelfSubjectAccessReviews as alice, and may nothing
// else as her: what a review says is not what this one may list.
func constrainedAttacks() []attack {
	var out []attack
	for name, lines := range map[string][]string{
		"alice": {"Impersonate-User: alice"},
		"admin": {"Impersonate-User: admin", "Impersonate-Group: system:masters"},
		"none":  nil,
	} {
		out = append(out, by([]string{reviewer},
			attack{name: "as " + name + ", list", target: podsOfA, header: lines},
			attack{name: "as " + name + ", list all", target: pods, header: lines},
			attack{name: "as " + name + ", get", target: podOfA, header: lines},
			attack{name: "as " + name + ", review", method: http.MethodPost, target: reviews, header: append([]string{asJSON}, lines...), body: reviewBody},
			askWho("as "+name+", who", lines...))...)
	}
	return out
}
