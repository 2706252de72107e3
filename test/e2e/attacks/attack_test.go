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
	// refused demands that listproxy itself refuses the attack, with a 4xx or by closing the connection. It must not forward
	// the attack.
	refused
	// refusedAlike is refused, and also demands the status with which kube-apiserver refuses the same bytes. The body may
	// differ.
	refusedAlike
)

// An attack is a malformed request, or a harmless variant of a request. Each row of the tables is an attack. It says in one of
// three ways what is sent:
//
//   - with method, target, header and body: a request is made from them, for HTTP/1.1 or for HTTP/2
//   - with bytes: they are written as they are to an HTTP/1.1 connection
//   - with frames: the function writes frames to an HTTP/2 connection
//
// After each attack a second request follows on the same connection: the follower. It is innocent and has no credentials.
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
	name string // if "", the name is made from what is sent (title)

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
	// wantStatus is the status that a refused attack must get. 0 allows any 4xx, and a closed connection.
	wantStatus int
	// wantHitFor names users whose answer must come from memory.
	wantHitFor []string
	// malformedBody means that the body cannot be read to its end. kube-apiserver may answer without reading it. listproxy has
	// to pass it on, and may find the error first. So listproxy may answer 400, or end the stream with a PROTOCOL_ERROR,
	// whatever kube-apiserver answers.
	malformedBody bool
	// mayClose allows listproxy to close the connection after the answer.
	mayClose bool
}

// withUsers sets the users of those attacks that have none, and returns all attacks.
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

// usersOfRun returns the users that send the attack in this run: all, or with -short only the last one.
func (a attack) usersOfRun() []string {
	if testing.Short() {
		return a.users[len(a.users)-1:]
	}
	return a.users
}

// requestHTTP1 returns the bytes that are written to an HTTP/1.1 connection, with placeholders.
func (a attack) requestHTTP1() string {
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

// writeHTTP2 writes the attack's frames to an HTTP/2 connection.
func (a attack) writeHTTP2(w *wire) {
	if a.frames != nil {
		a.frames(w)
		return
	}
	fields := withField(request(a.target), field{":method", cmp.Or(a.method, http.MethodGet)})
	userHasToken := w.fill.Replace("{token}") != ""
	if a.withoutOwnToken || !userHasToken {
		fields = withoutField(fields, "authorization")
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

// maySeeMarker reports whether the answer may have the marker, a text in objects that only an admin may list. It may if the
// user is an admin, or if the attack sends an admin's token.
func (a attack) maySeeMarker(user string) bool {
	sent := a.target + a.header + a.bytes
	return logins[user].mayListAll || strings.Contains(sent, "{token:admin") || strings.Contains(sent, "{bearer:admin")
}

// hasRefusedBody reports whether listproxy has refused a body, as malformedBody allows. Over HTTP/1.1 listproxy must then close
// the connection, since nobody knows where the next request begins. So hasRefusedBody is false if the follower was answered.
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

// lastID is the number of the last attempt.
var lastID atomic.Int32

// send sends the attack and the follower to a server as a user, and reads what comes back. An error means that no connection
// could be opened.
func (a attack) send(ctx context.Context, server endpoint, protocol, user string) (attempt, error) {
	who, isKnown := logins[user]
	if !isKnown {
		return attempt{}, fmt.Errorf("nobody is called %q", user)
	}
	id := fmt.Sprintf("a%05d", lastID.Add(1))
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	send := sendHTTP2
	if protocol == http1 {
		send = sendHTTP1
	}
	out, err := send(ctx, server, who, a, placeholderReplacer(id, who))
	return attempt{id: id, outcome: out}, err
}

// bearerProtocol is the prefix of a token that is written as a subprotocol of WebSocket
// (k8s.io/apiserver/pkg/authentication/request/websocket).
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

// placeholderReplacer returns what replaces the placeholders of an attack: id is for {id}, and who is the user.
func placeholderReplacer(id string, who login) *strings.Replacer {
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
	// maxAttempts is the largest number of times that one attack is sent.
	maxAttempts = 6
	// openTimeout is the shortest time after which a server gives up a connection that a client is still opening: 2 s, the
	// firstSettingsTimeout of net/http's HTTP/2. All other timeouts of kube-apiserver and listproxy are 10 s or longer.
	openTimeout = 2 * time.Second
)

// mustSend sends the attack. If the connection could not be opened, and that took openTimeout or longer, it tries again: on a
// busy machine this process may have stood still for so long that the server gave up. An error that comes sooner ends the test.
func (a attack) mustSend(t *testing.T, server endpoint, protocol, user string) attempt {
	t.Helper()
	for i := 1; ; i++ {
		started := time.Now()
		sent, err := a.send(t.Context(), server, protocol, user)
		if err == nil {
			return sent
		}
		took := time.Since(started)
		if took < openTimeout || i == maxAttempts {
			t.Fatalf("no connection after %v: %v", took, err)
		}
	}
}
