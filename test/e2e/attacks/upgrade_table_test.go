package attacks

import (
	"net/http"
	"slices"
	"strings"
)

const (
	spdy      = "Connection: Upgrade\nUpgrade: SPDY/3.1"
	webSocket = "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
	// webSocketAs is webSocket with the beginning of one more header. The names of subprotocols follow it.
	webSocketAs = webSocket + "\nSec-WebSocket-Protocol: "

	podExec      = podOfA + "/exec?command=x&stdout=1"
	podsWatchOfA = podsOfA + "&watch=1&timeoutSeconds=1"
)

// upgradeAttacks try to change the protocol of an HTTP/1.1 connection. After an upgrade a proxy passes on bytes without looking
// at them. It would be worst for the user of a certificate: listproxy's connection to kube-apiserver has its own credentials,
// so the user could send requests with listproxy's rights.
func upgradeAttacks() []attack {
	const execHead = "GET /api/v1/namespaces/team-a/pods/none/exec?command=x HTTP/1.1\r\n" + attackerHeaders
	behind := attack{
		name:  "upgrade, and a request behind",
		bytes: execHead + "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n" + smuggled, users: []string{reader, anonymous},
	}
	out := slices.Concat([]attack{behind}, knownProtocols(), otherProtocols(), tokensAsSubprotocol())
	for i := range out {
		out[i].mayClose = true
	}
	return out
}

// The users who ask for an upgrade.
var (
	upgradeTokens       = []string{reader, anonymous}
	upgradeCertificates = []string{readerCert, adminCert, memberCert, accountCert}
)

// knownProtocols ask for a protocol to which kube-apiserver can upgrade a connection, or name no protocol.
func knownProtocols() []attack {
	return withUsers(
		slices.Concat(upgradeTokens, upgradeCertificates),
		attack{target: podsOfA, header: spdy},
		attack{target: podsOfA, header: webSocket},
		attack{target: podsOfA, header: webSocketAs + "x"},
		attack{target: podsOfA, header: "Connection: upgrade"},
		attack{target: podsOfA, header: "Connection: Upgrade\nUpgrade: "},
		attack{target: pods, header: webSocketAs + bearerProtocol + "eA, base64.binary.k8s.io"},
		attack{target: podsOfA, method: http.MethodPost, header: spdy},
		attack{target: podExec, method: http.MethodPost, header: spdy},
		attack{target: podExec, header: spdy},
		attack{target: podExec, header: webSocketAs + "v5.channel.k8s.io"},
		attack{target: podsWatchOfA, header: webSocketAs + "binary.k8s.io"},
	)
}

// otherProtocols ask for a protocol that kube-apiserver does not know. listproxy forwards the requests of users with tokens as
// they are. It refuses those of users with certificates, who could otherwise use listproxy's own credentials.
func otherProtocols() []attack {
	out := []attack{{
		target: podExec, header: webSocketAs + "x\nImpersonate-User: alice", users: upgradeCertificates,
		verdict: refused, wantStatus: http.StatusForbidden,
	}}
	for _, header := range []string{
		"Connection: Upgrade\nUpgrade: TLS/1.0",
		"Connection: Upgrade\nUpgrade: x",
		"Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
	} {
		for _, target := range []string{podsOfA, podsWatchOfA} {
			out = append(
				out,
				attack{target: target, header: header, users: upgradeTokens},
				attack{target: target, header: header, users: upgradeCertificates, verdict: refused, wantStatus: http.StatusBadRequest},
			)
		}
	}
	return out
}

// tokensAsSubprotocol have a token as a subprotocol of WebSocket, which kube-apiserver reads if there is no Authorization.
func tokensAsSubprotocol() []attack {
	// Lists with one token in its right form, and another subprotocol: kube-apiserver takes the token.
	readable := []string{
		"{bearer:alice}, v4.channel.k8s.io", "v4.channel.k8s.io, {bearer:admin}", "{bearer:stranger}, v4.channel.k8s.io",
	}
	// Lists with two tokens, without another subprotocol, with a malformed token, or with none.
	unreadable := []string{
		"{bearer:alice}, {bearer:admin}, x", "{bearer:admin}", bearerProtocol + "!, x", bearerProtocol + ", x",
		strings.ToUpper(bearerProtocol) + "eA, x", "x, y",
	}
	var out []attack
	for _, user := range []string{anonymous, stranger, readerCert, expiredCert, foreignCert, withToken(expiredCert, stranger)} {
		for _, protocols := range slices.Concat(readable, unreadable) {
			want := answeredAsUpstream
			hasCertificateOnly := user == expiredCert || user == foreignCert
			if hasCertificateOnly && slices.Contains(unreadable, protocols) {
				want = refusedAlike
			}
			for _, target := range []string{podsOfA, pods, podsWatchOfA} {
				out = append(out, attack{
					name: protocols + ", " + target, target: target, header: webSocketAs + protocols,
					users: []string{user}, verdict: want,
				})
			}
		}
	}
	return out
}
