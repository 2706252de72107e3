package attacks

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	h2 "golang.org/x/net/http2"
)

// A verdict is what an attack must get.
type verdict int

const (
	// answeredAsUpstream demands kube-apiserver's own answer to the same bytes.
	answeredAsUpstream verdict = iota
	// refused demands a 4xx or a closed connection. kube-apiserver must not see the attack.
	refused
	// refusedAlike demands the status of kube-apiserver's answer to the same bytes, in listproxy's words. kube-apiserver
	// must not see the attack.
	refusedAlike
)

// An attack is a malformed request, or a harmless variant of a request. A row of a table says what is sent in one of three
// ways:
//
//   - method, target, header and body, from which the requests of both protocols are made
//   - bytes, which are written to a connection of HTTP/1.1
//   - frames, which write to a connection of HTTP/2
//
// All texts may have these placeholders:
//
//	{host}           kube-apiserver's address
//	{id}             the number of the attack, which begins the Audit-Id
//	{token}          the user's token
//	{authorization}  the whole line "Authorization: Bearer {token}\r\n", or nothing if the user has no token
//	{token:USER}     another user's token
//	{bearer:USER}    another user's token as a subprotocol of WebSocket
type attack struct {
	name string // "": title makes a name of what is sent

	method string // "" is GET
	target string
	// header has lines of the form "Name: value", with "\n" between two lines. They follow the user's Authorization.
	header string
	// withoutOwnToken leaves out the user's Authorization. header may still have one.
	withoutOwnToken bool
	body            string

	bytes  string
	frames func(*wire)

	users   []string // each sends the attack
	verdict verdict
	// wantStatus is the status that an attack with the verdict refused must get. 0 allows any 4xx, and a closed connection.
	wantStatus int
	// wantHitFor names users whose answer must come from memory.
	wantHitFor []string
	// malformedBody allows listproxy to answer 400, or to end the stream with a PROTOCOL_ERROR, whatever kube-apiserver
	// answers. kube-apiserver may answer without having read the body. listproxy has to pass the body on, and may find the
	// error first.
	malformedBody bool
	// mayClose allows listproxy to close the connection after the answer.
	mayClose bool
}

// withUsers returns the attacks. Those without users get these users.
func withUsers(users []string, attacks ...attack) []attack {
	for i := range attacks {
		if attacks[i].users == nil {
			attacks[i].users = users
		}
	}
	return attacks
}

// title returns the attack's name for a test.
func (a attack) title() string {
	sent := strings.TrimSpace(a.method + " " + a.target + " " + a.header)
	return cmp.Or(a.name, fmt.Sprintf("%.120q", cmp.Or(a.bytes, sent)))
}

// usersOfRun returns the users that send the attack: all of them, or with -short only the last one.
func (a attack) usersOfRun() []string {
	if testing.Short() {
		return a.users[len(a.users)-1:]
	}
	return a.users
}

// http1 returns the attack's bytes of HTTP/1.1.
func (a attack) http1() string {
	if a.bytes != "" {
		return a.bytes
	}
	var b strings.Builder
	const head = "%s %s HTTP/1.1\r\nHost: {host}\r\nUser-Agent: attacker\r\nAudit-Id: {id}.1\r\n"
	fmt.Fprintf(&b, head, cmp.Or(a.method, http.MethodGet), a.target)
	if !a.withoutOwnToken {
		b.WriteString("{authorization}")
	}
	for _, line := range a.headerLines() {
		b.WriteString(line + "\r\n")
	}
	if a.body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(a.body))
	}
	return b.String() + "\r\n" + a.body
}

// http2 writes the attack's frames of HTTP/2.
func (a attack) http2(w *wire) {
	if a.frames != nil {
		a.frames(w)
		return
	}
	fields := request(a.target)
	fields[0] = field{":method", cmp.Or(a.method, http.MethodGet)}
	if a.withoutOwnToken || w.fill.Replace("{token}") == "" {
		fields = fields[:len(fields)-1] // the last is Authorization
	}
	for _, line := range a.headerLines() {
		name, value, _ := strings.Cut(line, ":")
		fields = append(fields, field{strings.ToLower(name), strings.TrimSpace(value)})
	}
	endsRequest := a.body == ""
	w.writeHeaders(attackStream, endsRequest, fields...)
	if !endsRequest {
		w.writeData(endStream, a.body)
	}
}

// headerLines returns the lines of header.
func (a attack) headerLines() []string {
	if a.header == "" {
		return nil
	}
	return strings.Split(a.header, "\n")
}

// maySeeMarker reports whether the user, or another one whose token the attack sends, may list the objects with the marker.
func (a attack) maySeeMarker(user string) bool {
	sent := a.target + a.header + a.bytes
	return logins[user].mayListAll || strings.Contains(sent, "{token:admin") || strings.Contains(sent, "{bearer:admin")
}

// hasRefusedBody reports whether listproxy has refused the body, as malformedBody allows. Over HTTP/1.1 it must then also end
// the connection, and so must not answer the follower.
func (a attack) hasRefusedBody(got outcome) bool {
	if !a.malformedBody {
		return false
	}
	first := got.toAttack()
	if first.Status == 0 {
		return first.Reset == h2.ErrCodeProtocol.String()
	}
	isHTTP2 := first.Stream != 0
	answeredFollower := len(got.Answers) > 1
	return first.Status == http.StatusBadRequest && (isHTTP2 || !answeredFollower)
}

// An attempt is an attack that was sent, and its outcome.
type attempt struct {
	id string // the part of the Audit-Id before the first full stop
	outcome
}

// lastID is the number of the attack that was sent last.
var lastID atomic.Int32

// send sends the attack to a server. An error means that there was no connection.
func (a attack) send(ctx context.Context, server endpoint, protocol, user string) (attempt, error) {
	who, known := logins[user]
	if !known {
		return attempt{}, fmt.Errorf("nobody is called %q", user)
	}
	id := fmt.Sprintf("a%05d", lastID.Add(1))
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	send := sendHTTP2
	if protocol == http1 {
		send = sendHTTP1
	}
	out, err := send(ctx, server, who, a, fillPlaceholders(id, who))
	return attempt{id, out}, err
}

// bearerProtocol is the prefix of a token that is written as a subprotocol of WebSocket
// (k8s.io/apiserver/pkg/authentication/request/websocket).
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// fillPlaceholders returns what replaces the placeholders of an attack.
func fillPlaceholders(id string, who login) *strings.Replacer {
	authorization := ""
	if who.token != "" {
		authorization = "Authorization: Bearer " + who.token + "\r\n"
	}
	pairs := []string{
		"{id}", id, "{host}", strings.TrimPrefix(cp.URL(), "https://"),
		"{token}", who.token, "{authorization}", authorization,
	}
	for name, other := range logins {
		if other.token != "" && other.certificate == nil {
			bearer := bearerProtocol + base64.RawURLEncoding.EncodeToString([]byte(other.token))
			pairs = append(pairs, "{token:"+name+"}", other.token, "{bearer:"+name+"}", bearer)
		}
	}
	return strings.NewReplacer(pairs...)
}

const (
	// maxAttempts is the number of times that one attack is sent at most.
	maxAttempts = 6
	// openTimeout is the shortest time that a server gives a client to open a connection: firstSettingsTimeout of net/http's
	// HTTP/2. All other timeouts of kube-apiserver and listproxy are 10 s or longer.
	openTimeout = 2 * time.Second
)

// mustSend sends the attack. If no connection could be opened in openTimeout, it tries again: on a busy machine this process
// may have stood still for as long. An error that comes sooner fails the test.
func (a attack) mustSend(t *testing.T, server endpoint, protocol, user string) attempt {
	t.Helper()
	for i := 1; ; i++ {
		begun := time.Now()
		sent, err := a.send(t.Context(), server, protocol, user)
		if err == nil {
			return sent
		}
		if took := time.Since(begun); took < openTimeout || i == maxAttempts {
			t.Fatalf("no connection after %v: %v", took, err)
		}
	}
}
