package attacks

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
)

// identityAttacks claim to be another user. Each header is sent with the list podsOfA, which the reader may have, and with the
// list pods, which only the admin may have.
func identityAttacks() []attack {
	var out []attack
	for _, header := range impersonations {
		var wantHitFor []string
		if strings.EqualFold(header, asUser+"alice") {
			wantHitFor = []string{deputy} // who may impersonate alice, the reader
		}
		out = append(
			out,
			attack{target: podsOfA, header: header, users: []string{reader, anonymous, reviewer, deputy}, wantHitFor: wantHitFor},
			attack{target: pods, header: header, users: []string{reader, nobody, anonymous, admin, deputy}},
		)
		// For the user of a certificate, listproxy itself sends Impersonate-User. If it passed on the user's header,
		// kube-apiserver would see listproxy impersonate, which may. So the user of a certificate must not impersonate anybody.
		out = append(out, readAttacks(attack{
			name: header, header: header, users: []string{adminCert, readerCert, withToken(readerCert, admin)},
			verdict: refused, wantStatus: http.StatusForbidden,
		}, hits{})...)
	}
	for _, header := range claims {
		out = append(
			out,
			attack{target: podsOfA, header: header, users: []string{reader, anonymous}},
			attack{target: pods, header: header, users: []string{reader, nobody, anonymous}},
		)
	}
	for _, header := range harmlessClaims {
		out = append(
			out,
			attack{target: podsOfA, header: header, users: []string{reader, anonymous}, wantHitFor: []string{reader}},
			attack{target: pods, header: header, users: []string{reader, nobody, anonymous}},
		)
		out = append(out, readAttacks(
			attack{name: header, header: header, users: []string{readerCert, nobodyCert}},
			hits{podsOfA: []string{readerCert}},
		)...)
	}
	return out
}

// asUser is the beginning of the header that names the user to impersonate.
const asUser = "Impersonate-User: "

// impersonations are headers that ask to act as somebody else, or look so. kube-apiserver obeys some, refuses some, and ignores
// the others.
var impersonations = []string{
	// A user, in different spellings of the name.
	asUser + "admin", "impersonate-user: admin", "IMPERSONATE-USER: admin", "iMpErSoNaTe-uSeR: admin", asUser + "alice",
	"IMPERSONATE-user: alice",
	// No user.
	"Impersonate-User:", asUser + " ",
	// Two users, of whom one may be empty.
	asUser + "alice\n" + asUser + "admin", "Impersonate-User:\n" + asUser + "admin",
	"impersonate-user: alice\nIMPERSONATE-USER: admin", asUser + "alice\n" + asUser + "alice",
	// A service account, a node, nobody.
	asUser + "system:serviceaccount:team-a:named", asUser + "system:node:x\nImpersonate-Group: system:nodes",
	asUser + "system:anonymous",
	// Groups, with a user and without.
	"Impersonate-Group: system:masters", asUser + "alice\nImpersonate-Group: system:masters",
	asUser + "alice\nImpersonate-Group: a\nImpersonate-Group: system:masters",
	asUser + "alice\nImpersonate-Group: system:authenticated",
	// A uid and extras.
	"Impersonate-Uid: uid-admin", asUser + "alice\nImpersonate-Uid: uid-admin", asUser + "alice\nImpersonate-Uid:",
	"Impersonate-Extra-Scopes: all", asUser + "alice\nImpersonate-Extra-Scopes: all", asUser + "alice\nImpersonate-Extra-: all",
	asUser + "alice\nImpersonate-Extra-%61: y",
	// Headers that kube-apiserver does not know.
	"Impersonate-Something: all", "Impersonate-: all", "Impersonate: admin", "Impersonate_User: admin",
	asUser + "alice\nImpersonate-Tomorrow: x",
}

// claims are other headers that name a user or have a token. Both servers ignore most of them.
var claims = []string{
	// Headers of front proxies, in names that some servers take for them.
	"X_Remote_User: admin\nX_Remote_Group: system:masters", "x-remote-user: admin\nx-remote-group: system:masters",
	"X-Remote-User: admin\nX-Remote-Uid: 1\nX-Remote-Extra-Scopes: all\nX-Remote-Extra-: all",
	"X-Remote-User: alice\nX-Remote-User: admin",
	// Those of other servers.
	"Remote-User: admin\nX-User: admin\nX-Auth-Request-User: admin\n" +
		"Ssl-Client-Cert: x\nX-Ssl-Client-Cn: admin\nX-Forwarded-Client-Cert: By=admin",
	// The admin's token at another place.
	"Proxy-Authorization: Bearer {token:admin}", "Cookie: Authorization=Bearer {token:admin}; token={token:admin}",
}

// harmlessClaims are headers that both servers ignore, so that a list comes from memory.
var harmlessClaims = []string{
	"X-Remote-User: admin\nX-Remote-Group: system:masters",
	"X-Forwarded-User: admin\nX-Forwarded-Groups: system:masters\nX-Forwarded-For: 10.0.0.1\n" +
		"Forwarded: for=10.0.0.1\nX-Real-Ip: 10.0.0.1",
	"Audience: https://kubernetes.default.svc",
}

// credentialAttacks write Authorization in ways that a parser may misread.
func credentialAttacks() []attack {
	const authorization = "Authorization: "
	const aliceToken, adminToken = "Bearer {token:alice}", "Bearer {token:admin}"
	headers := []string{
		"",
		authorization + aliceToken + "\n" + authorization + aliceToken,
		authorization + adminToken + "\n" + authorization + aliceToken,
		"authorization: " + aliceToken + "\nAUTHORIZATION: " + adminToken,
		"Sec-WebSocket-Protocol: " + bearerProtocol + encodeToken("x") + ", v4.channel.k8s.io",
	}
	for _, value := range []string{
		// The scheme, the token or both are missing.
		"", "Bearer", "Bearer ", "{token:alice}",
		// An odd space between the two, and something behind the token or around it.
		"Bearer  {token:alice}", "Bearer\t{token:alice}", "Bearer\u00a0{token:alice}", aliceToken + " x", aliceToken + ",",
		aliceToken + ", " + adminToken, `Bearer "{token:alice}"`, aliceToken + "\xc3\xa9", aliceToken + "\xff",
		// Other schemes.
		"Basic " + base64.StdEncoding.EncodeToString([]byte("admin:admin")), "Token {token:alice}", "Negotiate YII=",
		// A JSON Web Token of the admin that is not signed ("alg":"none").
		"Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiIsImdyb3VwcyI6WyJzeXN0ZW06bWFzdGVycyJdfQ.",
	} {
		headers = append(headers, authorization+value)
	}
	for _, first := range []string{aliceToken, "", "Basic eDp5", "Bearer x"} {
		headers = append(headers, authorization+first+"\n"+authorization+adminToken)
	}
	asAlice := []string{ // alice's token in unusual spellings that both servers accept
		authorization + "bearer {token:alice}", authorization + "BEARER {token:alice}", authorization + "   " + aliceToken,
		authorization + aliceToken + "   ",
	}
	var out []attack
	for _, header := range slices.Concat(headers, asAlice) {
		ofA := attack{target: podsOfA, header: header}
		if slices.Contains(asAlice, header) {
			ofA.wantHitFor = []string{anonymous} // who sends alice's token here, and nothing else
		}
		out = append(out, ofA, attack{target: pods, header: header})
	}
	out = append(
		out,
		attack{target: podsOfA, header: authorization + "Bearer " + strings.Repeat("x", 100_000), verdict: refused},
		attack{target: pods + "&access_token={token:admin}&token={token:admin}"},
	)
	for i := range out {
		out[i].withoutOwnToken = true
	}
	return withUsers([]string{anonymous}, out...)
}
