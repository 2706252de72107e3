package attacks

import (
	"net/http"
	"slices"
	"strings"
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

// who is the question who somebody is.
func who(a attack) attack {
	a.method, a.target, a.body = http.MethodPost, whoAmI, whoBody
	a.header = append([]string{asJSON}, a.header...)
	a.name, a.hit = a.name+", who", nil
	return a
}

// asking is an attack that asks for a list that the reader may have; for one that only the admin may,
// which from memory all are to get; for an object; and who one is.
func asking(a attack, all ...string) []attack {
	list, whole, object := a, a, a
	list.name, list.target = a.name+", list", podsOfA
	whole.name, whole.target, whole.hit = a.name+", list all", pods, all
	object.name, object.target, object.hit = a.name+", get", podOfA, nil
	return []attack{list, whole, object, who(a)}
}

// goodCerts are users whom both servers know by a certificate.
var goodCerts = []string{
	adminCert, readerCert, identifiedCert, developerCert, namedCert, accountCert, memberCert, nobodyCert, outsiderCert,
	frontClientCert, spelledCert,
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
		who(attack{name: "by certificate"}),
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
	out := asking(attack{name: "two users", as: both, hit: both[:3]}, with(adminCert, reader))
	one := []string{readerCert}
	for _, lines := range []string{
		"Authorization:", "Authorization: Bearer", "Authorization: Basic YWRtaW46YWRtaW4=",
		"Authorization: Bearer {token:admin}\nAuthorization: Bearer {token:alice}", "Proxy-Authorization: Bearer {token:admin}",
		"Sec-WebSocket-Protocol: {bearer:admin}, x",
	} {
		out = append(out, asking(attack{name: lines, header: strings.Split(lines, "\n"), as: one, hit: one, bare: true})...)
	}
	return out
}

// certificateAndClaims is a certificate, and headers that say something else.
func certificateAndClaims() []attack {
	var out []attack
	// Whom listproxy states cannot impersonate: the API server would judge listproxy's right to.
	for _, line := range []string{
		"Impersonate-User: alice", "impersonate-user: alice", "IMPERSONATE-USER: alice", "Impersonate-User:", "Impersonate-User: admin",
		"Impersonate-Group: system:masters", "Impersonate-Uid: x", "Impersonate-Extra-Scopes: all", "Impersonate-Something: all",
		"Impersonate-: all", "Impersonate: admin", "Impersonate_User: admin",
	} {
		out = append(out, asking(attack{
			name: line, header: []string{line}, as: []string{adminCert, readerCert, with(readerCert, admin)},
			want: refused, status: http.StatusForbidden,
		})...)
	}
	// Nobody is believed.
	for name, lines := range map[string][]string{
		"remote":    {"X-Remote-User: admin", "X-Remote-Group: system:masters", "X-Remote-Uid: 1", "X-Remote-Extra-Scopes: all"},
		"forwarded": {"X-Forwarded-User: admin", "X-Forwarded-For: 10.0.0.1", "Forwarded: for=10.0.0.1", "X-Real-Ip: 10.0.0.1"},
	} {
		as := []string{readerCert, nobodyCert, frontClientCert, reader}
		out = append(out, asking(attack{name: name + " headers", header: lines, as: as, hit: []string{readerCert, reader}})...)
	}
	return out
}

// unbelievedCertificates are those that are wrong, and those whose user cannot be stated.
func unbelievedCertificates() []attack {
	out := asking(attack{name: "unbelieved", as: badCerts, want: refusedAlike})
	for _, line := range []string{"Authorization: Basic YTph", "Authorization: Bearer ", "Impersonate-User: alice", "X-Remote-User: alice"} {
		out = append(out, attack{name: "unbelieved, and " + line, target: podsOfA, header: []string{line}, as: badCerts, want: refusedAlike, bare: true})
	}
	for _, bad := range badCerts {
		good := with(bad, reader)
		out = append(out, asking(attack{name: "unbelieved, a token", as: []string{good, with(bad, stranger)}, hit: []string{good}})...)
	}
	for _, target := range []string{podsOfA, pods, podOfA} {
		out = append(out, attack{name: "cannot be stated, " + target, target: target, as: []string{anonymousCert, oddCert}, want: refusedAlike})
	}
	return append(out, asking(attack{
		name: "cannot be stated", as: []string{anonymousCert, oddCert, ungroupedCert}, want: refused, status: http.StatusForbidden,
	})...)
}

// certificateConnectionAttacks are those that need a Connection header.
func certificateConnectionAttacks() []attack {
	spdy := []string{"Connection: Upgrade", "Upgrade: SPDY/3.1"}
	protocol := func(of string) []string {
		return append(slices.Clone(webSocket), "Sec-WebSocket-Protocol: "+of)
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
		for of, token := range map[string]bool{
			"{bearer:alice}, v4.channel.k8s.io":           true,
			"v4.channel.k8s.io, {bearer:admin}":           true,
			"{bearer:stranger}, v4.channel.k8s.io":        true,
			"{bearer:alice}, {bearer:admin}, x":           false,
			"{bearer:admin}":                              false,
			bearerProtocol + "!, x":                       false,
			bearerProtocol + ", x":                        false,
			"BASE64URL.BEARER.AUTHORIZATION.K8S.IO.eA, x": false,
			"x, y": false,
		} {
			want := answeredAsUpstream
			if !token && (user == expiredCert || user == foreignCert) {
				want = refusedAlike
			}
			for _, target := range []string{podsOfA, pods, podsOfA + "&watch=1&timeoutSeconds=1"} {
				out = append(out, attack{name: of + ", " + target, target: target, header: protocol(of), as: []string{user}, want: want, closes: true})
			}
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
		out = append(out, asking(attack{
			name: "a front proxy says " + name, header: lines, as: []string{frontCert}, want: refused, status: http.StatusUnauthorized,
		})...)
	}
	good := with(frontCert, reader)
	return append(out, asking(attack{name: "a front proxy with a token", as: []string{good, with(frontCert, stranger)}, hit: []string{good}})...)
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
		a := attack{name: "as " + name, header: lines, as: []string{reviewer}}
		out = append(out, asking(a)...)
		a.name, a.method, a.target, a.header, a.body = "as "+name+", review", http.MethodPost, reviews, append([]string{asJSON}, lines...), reviewBody
		out = append(out, a)
	}
	return out
}
