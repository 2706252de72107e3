package attacks

import (
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

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	h2 "golang.org/x/net/http2"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// followerTarget is a list that is in memory and that nobody may have without credentials.
const followerTarget = "/api/v1/namespaces/team-a/pods?resourceVersion=0"

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
	// bare.
	header []string
	bare   bool
	body   string

	bytes  string
	frames func(*wire)

	as   []string // default: everybody
	want verdict
	// status is that of the answer, where it is refused; 0 is any, or none.
	status int
	// elsewhere says that the attack names another host than the API server: in a tunnel, which
	// leads there only, that is refused with 421.
	elsewhere bool
	// hit names users whose answer must come from memory.
	hit []string
	// unread says that the body is malformed, which the API server may not notice before it
	// answers. listproxy, that has to pass the body on, may: then it answers 400 and ends the
	// connection or the stream. Or net/http notices before the upstream has answered, and ends the
	// stream with what it is.
	unread bool
	// closes allows listproxy to close the connection behind the answer.
	closes bool
	// unanswered says that the API server waits for a body that never comes, and answers nothing
	// while it does. That is all there is to compare, so nobody is given much time.
	unanswered bool
}

// wantAt is what the attack must get at a door.
func (a attack) wantAt(d door) (verdict, int) {
	if a.elsewhere && d.tunnel {
		return refused, http.StatusMisdirectedRequest
	}
	return a.want, a.status
}

// everybody is who attacks, without a certificate, if the table does not say who.
var everybody = []string{admin, reader, named, nobody, anonymous, stranger}

// http1 is the attack's bytes.
func (a attack) http1() string {
	if a.bytes != "" {
		return a.bytes
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: {host}\r\nUser-Agent: attacker\r\nAudit-Id: {id}.1\r\n", a.verb(), a.target)
	if !a.bare {
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
	fields := []field{
		{":method", a.verb()},
		{":scheme", "https"},
		{":authority", "{host}"},
		{":path", a.target},
		{"user-agent", "attacker"},
		{"audit-id", "{id}.1"},
	}
	if authorization := w.fill.Replace("{authorization}"); !a.bare && authorization != "" {
		_, value, _ := strings.Cut(strings.TrimSpace(authorization), ": ")
		fields = append(fields, field{"authorization", value})
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

func (a attack) verb() string {
	if a.method == "" {
		return http.MethodGet
	}
	return a.method
}

// adminInvolved tells whether the attack has the admin's rights, by the user or in its bytes.
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

// send sends an attack through a door, and returns what it is called in the audit log.
func (a attack) send(ctx context.Context, d door, protocol, user string) (string, outcome, error) {
	id := fmt.Sprintf("a%05d", attempts.Add(1))
	who, known := logins[user]
	if !known {
		return id, outcome{}, fmt.Errorf("nobody is called %q", user)
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
			pairs = append(pairs, "{token:"+name+"}", l.token, "{bearer:"+name+"}", bearerProtocol+base64.RawURLEncoding.EncodeToString([]byte(l.token)))
		}
	}
	fill := strings.NewReplacer(pairs...)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if protocol == http1 {
		out, err := sendHTTP1(ctx, d, who, a, fill)
		return id, out, err
	}
	out, err := sendHTTP2(ctx, d, who, a, fill)
	return id, out, err
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
		"methods": methodAttacks(), "headers": headerAttacks(), "watches": watchAttacks(),
		"certificates": certificateAttacks(), "front proxy": frontProxyAttacks(), "impersonation": constrainedAttacks(),
	}
	one, two := http1Attacks(), http2Attacks()
	one["queries"] = queryAttacks() // which are the same string in both
	one["certificates and connections"] = certificateConnectionAttacks()
	for name, attacks := range both {
		one[name], two[name] = append(one[name], attacks...), append(two[name], attacks...)
	}
	return map[string]map[string][]attack{http1: one, http2: two}
}

// TestAttacks runs the table through all doors, and then asks the API server, and the way to it,
// what they saw.
func TestAttacks(t *testing.T) {
	for _, d := range doors {
		warm(t, d)
	}
	// The group ends when its parallel tests have.
	t.Run("by", func(t *testing.T) {
		for protocol, chapters := range groups() {
			for chapter, attacks := range chapters {
				for _, a := range attacks {
					users := a.as
					if users == nil {
						users = everybody
					}
					if testing.Short() { // make test-all has all who attack
						users = users[len(users)-1:]
						if len(a.as) == 0 {
							users = []string{reader}
						}
					}
					for _, user := range users {
						t.Run(strings.Join([]string{strings.ReplaceAll(protocol, "http/1.1", "http1"), chapter, a.name, user}, "/"), func(t *testing.T) {
							t.Parallel()
							run(t, protocol, a, user)
						})
					}
				}
			}
		}
	})
	t.Run("audit", testAudit)
	t.Run("wiretap", testWiretap)
}

// warm waits until what is attacked is in memory.
func warm(t *testing.T, d door) {
	t.Helper()
	for _, target := range []string{pods, podsOfA, podsOfB, configMaps, configMapsOfA} {
		poll.Until(t, patience, target+" comes from memory", func() bool {
			_, out, err := attack{target: target}.send(t.Context(), d, http2, admin)
			// The marker must be there to be found.
			return err == nil && out.hit() && out.shows(marker) == (target != podsOfA)
		})
	}
}

// run makes one attack, straight and through each door.
func run(t *testing.T, protocol string, a attack, user string) {
	straight := &try{}
	for _, d := range doors {
		if d.tunnel && testing.Short() {
			continue // make test-all goes through both
		}
		if d.tunnel && user == admin && len(a.as) > 1 {
			continue // behind both doors is one handler: there the admin shows nothing that others do not
		}
		t.Run(d.name, func(t *testing.T) { straight = runAt(t, d, protocol, a, user, straight) })
	}
}

// A try is an attack that was made, and what came of it.
type try struct {
	id  string // as the audit log has it; empty: not made yet
	got outcome
}

// runAt makes one attack through a door, and straight unless it was made before. It returns the
// latter.
func runAt(t *testing.T, d door, protocol string, a attack, user string, straight *try) *try {
	t.Helper()
	const tries = 6 // what the API server itself says may change in between, or depend on chance
	want, status := a.wantAt(d)
	var (
		seen  []*try // all that were made straight
		after string
		got   outcome
		err   error
	)
	if straight.id != "" {
		seen = append(seen, straight)
	}
	for again := range tries {
		begun := time.Now()
		if again > 0 || straight.id == "" {
			straight = &try{}
			if straight.id, straight.got, err = a.send(t.Context(), direct, protocol, user); err == nil {
				seen = append(seen, straight)
			}
		}
		if err == nil {
			begun = time.Now()
			after, got, err = a.send(t.Context(), d, protocol, user)
		}
		if err != nil {
			// There was no connection, so nothing of the attack was sent.
			if took := time.Since(begun); again == tries-1 || took < notAtOnce {
				t.Fatalf("after %v: %v", took, err)
			}
			t.Logf("try %d: %v", again+1, err)
			continue
		}
		if got.shows(marker) && !a.adminInvolved(user) {
			t.Errorf("the answer shows what %s may not list: %+v", user, got)
		}
		if want != answeredAsUpstream || a.gaveUp(got) {
			break
		}
		// Whatever the API server itself has said of this attack is right.
		if i := slices.IndexFunc(seen, func(s *try) bool { return diff(s.got, got, a.closes) == "" }); i >= 0 {
			straight = seen[i]
		}
		d := diff(straight.got, got, a.closes)
		// What should come from memory is forwarded where, for one, the review could not be made.
		if d == "" && (got.hit() || !slices.Contains(a.hit, user)) {
			break
		}
		t.Logf("try %d, %s: %s (-direct +via):\n%s", again+1, after, got.cacheStatus(), d)
	}
	switch want {
	case refused:
		wantRefused(t, user, straight.got, got, status)
	case refusedAlike:
		wantRefused(t, user, straight.got, got, straight.got.first().Status)
	case answeredAsUpstream:
		if d := diff(straight.got, got, a.closes); d != "" && !a.gaveUp(got) {
			t.Errorf("%s (-direct +via):\n%s", got.cacheStatus(), d)
		}
	}
	if want == answeredAsUpstream && slices.Contains(a.hit, user) && !got.hit() {
		t.Errorf("not from memory: %q", got.cacheStatus())
	}
	records.Lock()
	defer records.Unlock()
	records.all = append(records.all, record{
		name: t.Name(), direct: straight.id, via: after, want: want, hit: got.hit(),
		noFollower: !got.followerArrived(),
		less:       a.gaveUp(got) || a.closes, reset: got.End != "" || got.first().Reset != "",
	})
	return straight
}

// gaveUp tells whether listproxy noticed that a body is malformed, and has said so.
func (a attack) gaveUp(got outcome) bool {
	first := got.first()
	if first.Status == 0 {
		return a.unread && first.Reset == h2.ErrCodeProtocol.String()
	}
	return a.unread && first.Status == http.StatusBadRequest && (len(got.Answers) == 1 || first.Stream != 0)
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
	var complaints []string
	errIncomplete := errors.New("something is missing")
	if poll.Try(t.Context(), auditPatience, auditEvery, "the audit log is complete", func() error {
		if complaints = audits(t); len(complaints) > 0 {
			return errIncomplete
		}
		return nil
	}) == nil {
		return
	}
	for _, c := range complaints {
		t.Error(c)
	}
}

// audits says of which attacks the API server saw what it should not have seen. The caller holds
// the lock of records.
func audits(t *testing.T) []string {
	t.Helper()
	seen, err := audit.read()
	expect.NoError(t, err)
	var complaints []string
	for _, r := range records.all {
		if c := r.audit(seen); c != "" {
			complaints = append(complaints, r.name+":\n"+c)
		}
	}
	return complaints
}

// audit says what is wrong with what the API server saw.
func (r record) audit(seen map[string]accounts) string {
	want, got := seen[r.direct], seen[r.via]
	for _, address := range got.addresses {
		if address != "127.0.0.1" {
			return "believed to come from " + address
		}
	}
	expect := want.completed
	// A read whose connection to the API server ends before the answer is sent once more; the API
	// server notes the first one as timed out. Another attack may have ended that connection.
	got.completed = slices.CompactFunc(got.completed, func(a, b account) bool {
		return a.Code == http.StatusGatewayTimeout && cmp.Equal(a, b)
	})
	attacks := func(a account) bool { return a.ID == "1" }
	if r.reset {
		expect = slices.DeleteFunc(slices.Clone(expect), attacks)
		got.completed = slices.DeleteFunc(slices.Clone(got.completed), attacks)
	}
	follower := func(a account) bool { return a.ID == "follower" }
	if !slices.ContainsFunc(expect, follower) {
		// Straight the connection can have ended before what came behind the attack; refused as
		// what it is, it tells nobody anything.
		got.completed = slices.DeleteFunc(slices.Clone(got.completed), func(a account) bool {
			return follower(a) && (a.Code == http.StatusUnauthorized || a.Code == http.StatusForbidden)
		})
	}
	if r.noFollower {
		expect = slices.DeleteFunc(slices.Clone(expect), follower)
	}
	switch {
	case r.want != answeredAsUpstream:
		expect = slices.DeleteFunc(slices.Clone(got.completed), func(a account) bool { return !follower(a) })
	case r.hit:
		expect = slices.DeleteFunc(slices.Clone(expect), attacks)
	case r.less:
		expect = slices.DeleteFunc(slices.Clone(expect), func(a account) bool {
			return !slices.ContainsFunc(got.completed, func(b account) bool { return cmp.Equal(a, b) })
		})
	}
	return cmp.Diff(expect, got.completed, cmpopts.EquateEmpty())
}
