package attacks

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	h2 "golang.org/x/net/http2"

	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// A verdict is what an attack must get.
type verdict int

const (
	// answeredAsUpstream: the API server's own answer to the same bytes.
	answeredAsUpstream verdict = iota
	// refused: a 4xx or a closed connection, and the API server has not seen it.
	refused
	// refusedAlike: the status that the API server gives to the same bytes, in words of
	// listproxy's, and the API server has not seen it.
	refusedAlike
)

// An attack is a request that is not as it should be. It is either said for both protocols (target
// and what else), or is bytes of HTTP/1.1, or frames of HTTP/2. In all of them {token},
// {token:USER}, {bearer:USER} (the same token, as a protocol of WebSocket has it), {host} and {id}
// stand for what changes from user to user and from run to run.
type attack struct {
	name string

	method string // default GET
	target string
	// header holds lines, as "Name: value". The user's Authorization comes before them, unless
	// noAuthorization says otherwise.
	header          []string
	noAuthorization bool
	body            string

	bytes  string
	frames func(*wire)

	users []string // who attack
	want  verdict
	// wantStatus is that of the answer, where it is refused; 0 is any, or none.
	wantStatus int
	// wantHitFor names users whose answer must come from memory.
	wantHitFor []string
	// malformedBody: the API server may not notice before it answers. listproxy, that has to pass the body on, may:
	// then it answers 400 and ends the connection or the stream. Or net/http notices before the upstream has
	// answered, and ends the stream with what it is.
	malformedBody bool
	// mayClose allows listproxy to close the connection behind the answer.
	mayClose bool
}

// usersOfRun are all users, with -short one of them, since make test-all has all.
func (a attack) usersOfRun() []string {
	if testing.Short() {
		return a.users[len(a.users)-1:]
	}
	return a.users
}

// http1 is the attack's bytes.
func (a attack) http1() string {
	if a.bytes != "" {
		return a.bytes
	}
	var b strings.Builder
	const head = "%s %s HTTP/1.1\r\nHost: {host}\r\nUser-Agent: attacker\r\nAudit-Id: {id}.1\r\n"
	fmt.Fprintf(&b, head, a.verb(), a.target)
	if !a.noAuthorization {
		b.WriteString("{authorization}")
	}
	for _, line := range a.header {
		b.WriteString(line + "\r\n")
	}
	if a.body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(a.body))
	}
	return b.String() + "\r\n" + a.body
}

// http2 writes the attack's frames.
func (a attack) http2(w *wire) {
	if a.frames != nil {
		a.frames(w)
		return
	}
	fields := request(a.target)
	fields[0][1] = a.verb()
	if a.noAuthorization || w.fill.Replace("{token}") == "" {
		fields = fields[:len(fields)-1] // without the user's Authorization
	}
	for _, line := range a.header {
		name, value, _ := strings.Cut(line, ":")
		fields = append(fields, field{strings.ToLower(name), strings.TrimSpace(value)})
	}
	w.headers(attackStream, a.body == "", fields...)
	if a.body != "" {
		w.data(true, a.body)
	}
}

func (a attack) verb() string { return cmp.Or(a.method, http.MethodGet) }

// adminInvolved reports whether the attack has the admin's rights, by the user or in its bytes.
func (a attack) adminInvolved(user string) bool {
	return logins[user].all || slices.ContainsFunc(append(a.header, a.bytes, a.target), func(s string) bool {
		return strings.Contains(s, "{token:admin") || strings.Contains(s, "{bearer:admin")
	})
}

// bearerProtocol begins the protocol of WebSocket that is a token
// (k8s.io/apiserver/pkg/authentication/request/websocket).
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

const (
	// auditEvery is how often the whole audit log is read until it is complete.
	auditEvery = 500 * time.Millisecond
	// auditPatience is longer than patience: to read all of it once takes some seconds, and many
	// where much else runs. It only ends what fails.
	auditPatience = 5 * time.Minute
)

// notAtOnce is what a server grants at least to who opens a connection: the least is
// firstSettingsTimeout of net/http's HTTP/2, all others of kube-apiserver and of listproxy are 10 s
// and more. Where opening one takes longer, the server may have given it up because this process
// stood still; what fails sooner is its own fault.
const notAtOnce = 2 * time.Second

// attempts numbers what is sent, for the audit log.
var attempts atomic.Int32

// A try is an attack that was made, and what came of it.
type try struct {
	id string // as the audit log has it
	outcome
}

// send sends an attack through a door.
func (a attack) send(ctx context.Context, d door, protocol, user string) (try, error) {
	id := fmt.Sprintf("a%05d", attempts.Add(1))
	who, known := logins[user]
	if !known {
		return try{}, fmt.Errorf("nobody is called %q", user)
	}
	authorization := ""
	if who.token != "" {
		authorization = "Authorization: Bearer " + who.token + "\r\n"
	}
	pairs := []string{
		"{id}", id, "{host}", strings.TrimPrefix(cp.URL(), "https://"),
		"{token}", who.token, "{authorization}", authorization,
	}
	for name, l := range logins {
		if l.token != "" && l.certificate == nil {
			bearer := bearerProtocol + base64.RawURLEncoding.EncodeToString([]byte(l.token))
			pairs = append(pairs, "{token:"+name+"}", l.token, "{bearer:"+name+"}", bearer)
		}
	}
	fill := strings.NewReplacer(pairs...)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	send := sendHTTP2
	if protocol == http1 {
		send = sendHTTP1
	}
	out, err := send(ctx, d, who, a, fill)
	return try{id, out}, err
}

// A record is an attack that was made, for the audit.
type record struct {
	name, direct, via string // the latter two as the audit log has them
	want              verdict
	hit               bool
	less              bool // less may have arrived
	noFollower        bool // the request behind it has not arrived
	reset             bool // the attack's request may have been cancelled before it arrived
}

var records struct {
	sync.Mutex
	all []record
}

// groups are the chapters of the table.
func groups() map[string]map[string][]attack {
	both := map[string][]attack{
		"identity": identityAttacks(), "credentials": credentialAttacks(), "paths": pathAttacks(),
		"methods": methodAttacks(), "headers": headerAttacks(), "watches": watchAttacks(), "reads": readAttacks(),
		"resources": resourceAttacks(), "certificates": certificateAttacks(),
	}
	one, two := http1Attacks(), http2Attacks()
	one["queries"] = queryAttacks() // which are the same string in both
	for name, attacks := range both {
		one[name], two[name] = append(one[name], attacks...), append(two[name], attacks...)
	}
	return map[string]map[string][]attack{http1: one, http2: two}
}

// TestAttacks: each attack gets through listproxy what it gets straight from the API server, or is refused where it
// says so; and the API server has seen the same requests of the same users either way.
func TestAttacks(t *testing.T) {
	warm(t)
	// The group ends when its parallel tests have.
	t.Run("by", func(t *testing.T) {
		for protocol, chapters := range groups() {
			for chapter, attacks := range chapters {
				for _, a := range attacks {
					for _, user := range a.usersOfRun() {
						name := strings.Join([]string{strings.ReplaceAll(protocol, "http/1.1", "http1"), chapter, a.name, user}, "/")
						t.Run(name, func(t *testing.T) {
							t.Parallel()
							run(t, protocol, a, user)
						})
					}
				}
			}
		}
	})
	t.Run("audit", testAudit)
}

// warm waits until what is attacked is in memory.
func warm(t *testing.T) {
	t.Helper()
	for _, target := range []string{pods, podsOfA, podsOfB, configMaps, configMapsOfA} {
		poll.Until(t, patience, target+" comes from memory", func() bool {
			out, err := attack{target: target}.send(t.Context(), via, http2, admin)
			// The marker must be there to be found.
			return err == nil && out.hit() && out.shows(marker) == (target != podsOfA)
		})
	}
}

// fromTheRequest are the reasons that say nothing of the cluster, of the policy and of memory.
var fromTheRequest = []reason.Reason{
	reason.NotList, reason.NotCanonical, reason.Consistent, reason.Representation, reason.Credentials,
	reason.UnknownCaller, reason.ReviewFailed,
}

// run makes one attack, straight and through listproxy.
func run(t *testing.T, protocol string, a attack, user string) {
	const tries = 6 // what the API server itself says may change in between, or depend on chance
	var (
		seen          []try // all that were made straight
		straight, got try
	)
	for again := range tries {
		begun := time.Now()
		var err error
		if straight, err = a.send(t.Context(), direct, protocol, user); err == nil {
			seen = append(seen, straight)
			begun = time.Now()
			got, err = a.send(t.Context(), via, protocol, user)
		}
		if err != nil {
			// There was no connection, so nothing of the attack was sent.
			if took := time.Since(begun); again == tries-1 || took < notAtOnce {
				t.Fatalf("after %v: %v", took, err)
			}
			continue
		}
		if got.shows(marker) && !a.adminInvolved(user) {
			t.Errorf("the answer shows what %s may not list: %+v", user, got)
		}
		if a.want != answeredAsUpstream || a.gaveUp(got.outcome) {
			break
		}
		// Whatever the API server itself has said of this attack is right.
		alike := func(s try) bool { return diff(s.outcome, got.outcome, a.mayClose) == "" }
		if i := slices.IndexFunc(seen, alike); i >= 0 {
			straight = seen[i]
		}
		d := diff(straight.outcome, got.outcome, a.mayClose)
		// What should come from memory is forwarded where, for one, the review could not be made.
		if d == "" && (got.hit() || !slices.Contains(a.wantHitFor, user)) {
			break
		}
		t.Logf("try %d, %s: %s (-direct +via):\n%s", again+1, got.id, got.cacheStatus(), d)
	}
	switch a.want {
	case refused:
		wantRefused(t, user, straight.outcome, got.outcome, a.wantStatus)
	case refusedAlike:
		wantRefused(t, user, straight.outcome, got.outcome, straight.first().Status)
	case answeredAsUpstream:
		if d := diff(straight.outcome, got.outcome, a.mayClose); d != "" && !a.gaveUp(got.outcome) {
			t.Errorf("%s (-direct +via):\n%s", got.cacheStatus(), d)
		}
		if slices.Contains(a.wantHitFor, user) && !got.hit() {
			t.Errorf("not from memory: %q", got.cacheStatus())
		}
	}
	_, why, _ := strings.Cut(got.cacheStatus(), "detail=")
	unauthorized := straight.first().Status == http.StatusUnauthorized
	if unauthorized && why != "" && !slices.Contains(fromTheRequest, reason.Reason(why)) {
		t.Errorf("a caller whom the API server does not accept learns %q", why)
	}
	records.Lock()
	defer records.Unlock()
	records.all = append(records.all, record{
		name: t.Name(), direct: straight.id, via: got.id, want: a.want, hit: got.hit(),
		noFollower: !got.followerArrived(),
		less:       a.gaveUp(got.outcome) || a.mayClose, reset: got.End != "" || got.first().Reset != "",
	})
}

// gaveUp reports whether listproxy noticed that a body is malformed, and has said so.
func (a attack) gaveUp(got outcome) bool {
	first := got.first()
	if first.Status == 0 {
		return a.malformedBody && first.Reset == h2.ErrCodeProtocol.String()
	}
	return a.malformedBody && first.Status == http.StatusBadRequest && (len(got.Answers) == 1 || first.Stream != 0)
}

// wantRefused requires a 4xx, which one if status is not 0, or no answer at all; and that the
// follower, if it was answered, was treated as what it is: a request without credentials, or with
// nothing but the connection's certificate.
func wantRefused(t *testing.T, user string, want, got outcome, status int) {
	t.Helper()
	if first := got.first().Status; status != 0 && first != status {
		t.Errorf("status %d, want %d: %s", first, status, got.first().Body)
	}
	for i, a := range got.Answers {
		switch {
		case a.Status == 0 || a.Status/100 == 4:
		case i > 0 && logins[user].certificate != nil && i < len(want.Answers) && a.Status == want.Answers[i].Status:
		default:
			t.Errorf("answer %d is %d: %s", i, a.Status, a.Body)
		}
	}
	if got.End == "hangs" {
		t.Error("the connection hangs")
	}
}

// testAudit compares what the API server noted of each attack when it came straight and when it
// came through listproxy.
func testAudit(t *testing.T) {
	records.Lock()
	defer records.Unlock()
	// The last events are written when their answers have already been read.
	expect.NoError(t, poll.Try(t.Context(), auditPatience, auditEvery, "the audit log is complete, and right", func() error {
		seen, err := audit.read()
		for _, r := range records.all {
			if c := r.audit(seen); c != "" {
				err = errors.Join(err, errors.New(r.name+":\n"+c))
			}
		}
		return err
	}))
}

// audit says what is wrong with what the API server saw.
func (r record) audit(seen map[string]accounts) string {
	want, got := seen[r.direct].completed, seen[r.via].completed
	for _, address := range seen[r.via].addresses {
		if address != "127.0.0.1" {
			return "believed to come from " + address
		}
	}
	without := func(accounts []account, which func(account) bool) []account {
		return slices.DeleteFunc(slices.Clone(accounts), which)
	}
	attacks := func(a account) bool { return a.ID == "1" }
	follower := func(a account) bool { return a.ID == "follower" }
	// A read whose connection to the API server ends before the answer is sent once more; the API
	// server notes the first one as timed out. Another attack may have ended that connection.
	got = slices.CompactFunc(got, func(a, b account) bool {
		return a.Code == http.StatusGatewayTimeout && gocmp.Equal(a, b)
	})
	if r.reset {
		want, got = without(want, attacks), without(got, attacks)
	}
	if !slices.ContainsFunc(want, follower) {
		// Straight the connection can have ended before what came behind the attack; refused as
		// what it is, it tells nobody anything.
		got = without(got, func(a account) bool {
			return follower(a) && (a.Code == http.StatusUnauthorized || a.Code == http.StatusForbidden)
		})
	}
	if r.noFollower {
		want = without(want, follower)
	}
	switch {
	case r.want != answeredAsUpstream:
		want = without(got, func(a account) bool { return !follower(a) })
	case r.hit:
		want = without(want, attacks)
	case r.less:
		want = without(want, func(a account) bool {
			return !slices.ContainsFunc(got, func(b account) bool { return gocmp.Equal(a, b) })
		})
	}
	return gocmp.Diff(want, got, cmpopts.EquateEmpty())
}
