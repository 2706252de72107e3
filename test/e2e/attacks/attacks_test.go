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
	// answeredAsUpstream demands kube-apiserver's own answer to the same bytes.
	answeredAsUpstream verdict = iota
	// refused demands a 4xx or a closed connection. kube-apiserver must not see the attack.
	refused
	// refusedAlike demands the status of kube-apiserver's answer to the same bytes, in listproxy's words. kube-apiserver
	// must not see the attack.
	refusedAlike
)

// An attack is a request that is not as it should be, or a harmless variant of one. It is written as a method, target, header
// and body for both protocols, as bytes of HTTP/1.1 only, or as frames of HTTP/2 only. {host} stands for kube-apiserver's
// address, {id} for the number of the attack, {token} for the user's token, {authorization} for the line with it (nothing, if
// the user has none), {token:USER} for another user's token, and {bearer:USER} for the same as a subprotocol of WebSocket.
type attack struct {
	name string

	method string // "" is GET
	target string
	// header holds lines, as "Name: value". They follow the user's Authorization, unless withoutOwnToken.
	header []string
	// withoutOwnToken leaves out the user's Authorization. header may still have one.
	withoutOwnToken bool
	body            string

	bytes  string
	frames func(*wire)

	users   []string // each sends the attack
	verdict verdict
	// wantStatus is the status of a refusal; 0 allows any, or a closed connection.
	wantStatus int
	// wantHitFor names users whose answer must come from memory.
	wantHitFor []string
	// malformedBody allows listproxy a 400, or the end of the stream with a PROTOCOL_ERROR: kube-apiserver may answer before
	// it has read the body, but listproxy has to pass the body on, and may find the error first.
	malformedBody bool
	// mayClose allows listproxy to close the connection after the answer.
	mayClose bool
}

// usersOfRun returns the users that send the attack: all, or with -short the last.
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
	fmt.Fprintf(&b, head, a.verb(), a.target)
	if !a.withoutOwnToken {
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

// http2 writes the attack's frames of HTTP/2.
func (a attack) http2(w *wire) {
	if a.frames != nil {
		a.frames(w)
		return
	}
	fields := request(a.target)
	fields[0][1] = a.verb()
	if a.withoutOwnToken || w.fill.Replace("{token}") == "" {
		fields = fields[:len(fields)-1] // the last is Authorization
	}
	for _, line := range a.header {
		name, value, _ := strings.Cut(line, ":")
		fields = append(fields, field{strings.ToLower(name), strings.TrimSpace(value)})
	}
	endsRequest := a.body == ""
	w.headers(attackStream, endsRequest, fields...)
	if !endsRequest {
		w.data(endStream, a.body)
	}
}

// verb returns the method.
func (a attack) verb() string { return cmp.Or(a.method, http.MethodGet) }

// maySeeMarker reports whether the attack by a user shows credentials of somebody who may list everything.
func (a attack) maySeeMarker(user string) bool {
	texts := slices.Concat(a.header, []string{a.bytes, a.target})
	return logins[user].all || slices.ContainsFunc(texts, func(s string) bool {
		return strings.Contains(s, "{token:admin") || strings.Contains(s, "{bearer:admin")
	})
}

// bearerProtocol is the prefix of a token that is written as a subprotocol of WebSocket
// (k8s.io/apiserver/pkg/authentication/request/websocket).
const bearerProtocol = "base64url.bearer.authorization.k8s.io."

const (
	// auditInterval is the time between two readings of the audit log, until the log is complete.
	auditInterval = 500 * time.Millisecond
	// auditPatience ends the wait for a complete log. One reading takes seconds, and more on a busy machine.
	auditPatience = 5 * time.Minute
)

// openTimeout is the shortest time that a server allows for opening a connection: firstSettingsTimeout of net/http's HTTP/2.
// All other timeouts of kube-apiserver and listproxy are 10 s and longer. An attempt that fails later may have failed
// because this process stood still, so it is repeated. One that fails earlier is an error.
const openTimeout = 2 * time.Second

// attempts counts what was sent. The number is a part of the Audit-Id.
var attempts atomic.Int32

// A try is an attack that was sent, and its outcome.
type try struct {
	id string // the part of the Audit-Id before the first full stop
	outcome
}

// send sends the attack to the server behind a door. An error means that there was no connection.
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

// A record is an attack that was sent to both servers, for the comparison of the audit log.
type record struct {
	name            string
	directID, viaID string // of the tries
	verdict         verdict
	hit             bool
	// mayMiss reports that listproxy may have refused what kube-apiserver got directly.
	mayMiss bool
	// followerNotArrived reports that kube-apiserver cannot have got the follower through listproxy.
	followerNotArrived bool
	// mayBeCancelled reports that a stream was reset or the connection ended, so that kube-apiserver may not have got the
	// attack's request.
	mayBeCancelled bool
}

// records are those of all attacks.
var records struct {
	sync.Mutex
	all []record
}

// attacksByProtocol returns all attacks, by protocol and chapter.
func attacksByProtocol() map[string]map[string][]attack {
	both := map[string][]attack{
		"identity": identityAttacks(), "credentials": credentialAttacks(), "paths": pathAttacks(),
		"methods": methodAttacks(), "headers": headerAttacks(), "watches": watchAttacks(),
		"resources": resourceAttacks(), "certificates": certificateAttacks(),
	}
	byHTTP1, byHTTP2 := http1Attacks(), http2Attacks()
	byHTTP1["queries"] = queryAttacks() // a query is the same string in both protocols
	for chapter, attacks := range both {
		byHTTP1[chapter] = append(byHTTP1[chapter], attacks...)
		byHTTP2[chapter] = append(byHTTP2[chapter], attacks...)
	}
	return map[string]map[string][]attack{http1: byHTTP1, http2: byHTTP2}
}

// TestAttacks: each attack gets the same answers through listproxy as from kube-apiserver directly, or is refused if the
// table says so. kube-apiserver has seen the same requests of the same users in both cases.
func TestAttacks(t *testing.T) {
	warm(t)
	// Run returns when its parallel subtests have ended, so the audit comes after all attacks.
	t.Run("by", func(t *testing.T) {
		for protocol, chapters := range attacksByProtocol() {
			for chapter, attacks := range chapters {
				for _, a := range attacks {
					for _, user := range a.usersOfRun() {
						inName := strings.ReplaceAll(protocol, "http/1.1", "http1") // a slash would begin a subtest
						t.Run(strings.Join([]string{inName, chapter, a.name, user}, "/"), func(t *testing.T) {
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

// warm waits until the attacked lists come from memory.
func warm(t *testing.T) {
	t.Helper()
	for _, target := range []string{pods, podsOfA, podsOfB, configMaps, configMapsOfA} {
		poll.Until(t, patience, target+" comes from memory", func() bool {
			out, err := attack{target: target}.send(t.Context(), via, http2, admin)
			// All but podsOfA have objects with the marker, else no attack could show the marker.
			return err == nil && out.hit() && out.shows(marker) == (target != podsOfA)
		})
	}
}

// fromTheRequest are the reasons that follow from the request alone, and tell nothing of the cluster, the policy or memory.
var fromTheRequest = []reason.Reason{
	reason.NotList, reason.NotCanonical, reason.Consistent, reason.Representation, reason.Credentials,
	reason.UnknownCaller, reason.ReviewFailed,
}

// sendBoth sends one attack as one user to kube-apiserver, and through listproxy. It tries again while the two differ.
func sendBoth(t *testing.T, protocol string, a attack, user string) (fromUpstream, fromProxy try) {
	t.Helper()
	const maxTries = 6        // kube-apiserver's own answer may change from try to try
	var upstreamAnswers []try // each of them is right
	for i := range maxTries {
		var begun time.Time
		var err error
		for _, side := range []struct {
			door door
			out  *try
		}{{direct, &fromUpstream}, {via, &fromProxy}} {
			begun = time.Now()
			if *side.out, err = a.send(t.Context(), side.door, protocol, user); err != nil {
				break
			}
		}
		if err != nil { // there was no connection
			if took := time.Since(begun); i == maxTries-1 || took < openTimeout {
				t.Fatalf("after %v: %v", took, err)
			}
			continue
		}
		upstreamAnswers = append(upstreamAnswers, fromUpstream)
		if fromProxy.shows(marker) && !a.maySeeMarker(user) {
			t.Errorf("the answer shows what %s may not list: %+v", user, fromProxy)
		}
		if a.verdict != answeredAsUpstream || a.gaveUp(fromProxy.outcome) {
			break
		}
		isEqual := func(direct try) bool { return diff(direct.outcome, fromProxy.outcome, a.mayClose) == "" }
		if equal := slices.IndexFunc(upstreamAnswers, isEqual); equal >= 0 {
			fromUpstream = upstreamAnswers[equal]
		}
		d := diff(fromUpstream.outcome, fromProxy.outcome, a.mayClose)
		// What should come from memory may be forwarded for once, for example after a failed review.
		if d == "" && (fromProxy.hit() || !slices.Contains(a.wantHitFor, user)) {
			break
		}
		t.Logf("try %d, %s: %s (-direct +via):\n%s", i+1, fromProxy.id, fromProxy.cacheStatus(), d)
	}
	return fromUpstream, fromProxy
}

// run sends one attack as one user to both servers, judges the outcomes, and records the attack for the audit.
func run(t *testing.T, protocol string, a attack, user string) {
	t.Helper()
	fromUpstream, fromProxy := sendBoth(t, protocol, a, user)
	switch a.verdict {
	case refused:
		requireRefused(t, user, fromUpstream.outcome, fromProxy.outcome, a.wantStatus)
	case refusedAlike:
		requireRefused(t, user, fromUpstream.outcome, fromProxy.outcome, fromUpstream.first().Status)
	case answeredAsUpstream:
		if d := diff(fromUpstream.outcome, fromProxy.outcome, a.mayClose); d != "" && !a.gaveUp(fromProxy.outcome) {
			t.Errorf("%s (-direct +via):\n%s", fromProxy.cacheStatus(), d)
		}
		if slices.Contains(a.wantHitFor, user) && !fromProxy.hit() {
			t.Errorf("Cache-Status is %q, want an answer from memory", fromProxy.cacheStatus())
		}
	}
	_, why, _ := strings.Cut(fromProxy.cacheStatus(), "detail=")
	unauthorized := fromUpstream.first().Status == http.StatusUnauthorized
	if unauthorized && why != "" && !slices.Contains(fromTheRequest, reason.Reason(why)) {
		t.Errorf("a caller whom kube-apiserver does not accept learns the reason %q", why)
	}
	records.Lock()
	defer records.Unlock()
	records.all = append(records.all, record{
		name: t.Name(), directID: fromUpstream.id, viaID: fromProxy.id, verdict: a.verdict, hit: fromProxy.hit(),
		followerNotArrived: !fromProxy.followerArrived(),
		mayMiss:            a.gaveUp(fromProxy.outcome) || a.mayClose,
		mayBeCancelled:     fromProxy.End != "" || fromProxy.first().Reset != "",
	})
}

// gaveUp reports whether listproxy has refused a malformed body.
func (a attack) gaveUp(got outcome) bool {
	first := got.first()
	if first.Status == 0 {
		return a.malformedBody && first.Reset == h2.ErrCodeProtocol.String()
	}
	return a.malformedBody && first.Status == http.StatusBadRequest && (len(got.Answers) == 1 || first.Stream != 0)
}

// requireRefused requires a 4xx to the attack, with wantStatus if that is not 0, or no answer at all. An answer to the
// follower must be a 4xx as well, since the follower has no credentials. On a connection with a certificate the follower
// is the certificate's user, and may have the status of kube-apiserver's answer.
func requireRefused(t *testing.T, user string, fromUpstream, fromProxy outcome, wantStatus int) {
	t.Helper()
	if first := fromProxy.first(); wantStatus != 0 && first.Status != wantStatus {
		t.Errorf("status %d, want %d: %s", first.Status, wantStatus, first.Body)
	}
	for i, a := range fromProxy.Answers {
		isRefusal := a.Status == 0 || a.Status/100 == 4
		isFollower := i > 0 && i < len(fromUpstream.Answers)
		isCertificateUsers := isFollower && logins[user].certificate != nil && a.Status == fromUpstream.Answers[i].Status
		if !isRefusal && !isCertificateUsers {
			t.Errorf("answer %d has status %d, want a 4xx: %s", i, a.Status, a.Body)
		}
	}
	if fromProxy.End == hangs {
		t.Error("the connection hangs")
	}
}

// testAudit requires that kube-apiserver's audit log has the same of each attack that came directly and through listproxy.
func testAudit(t *testing.T) {
	records.Lock()
	defer records.Unlock()
	// kube-apiserver may write an event after the client has read the answer, so the log is read until it is complete.
	expect.NoError(t, poll.Try(t.Context(), auditPatience, auditInterval, "the audit log is the same for both", func() error {
		seen, err := audit.read()
		for _, r := range records.all {
			if d := r.auditDiff(seen); d != "" {
				err = errors.Join(err, errors.New(r.name+":\n"+d))
			}
		}
		return err
	}))
}

// auditDiff returns how kube-apiserver's accounts of the attack through listproxy differ from those of the direct one, or "".
// Both must have the same requests, but for those that listproxy did not send on, and those that may be missing or repeated
// because of a broken connection.
func (r record) auditDiff(seen map[string]accounts) string {
	for _, address := range seen[r.viaID].addresses {
		if address != "127.0.0.1" {
			return "kube-apiserver believes that the attack came from " + address
		}
	}
	want := slices.Clone(seen[r.directID].completed)
	got := withoutRepeats(seen[r.viaID].completed)
	if r.mayBeCancelled {
		want, got = slices.DeleteFunc(want, isAttack), slices.DeleteFunc(got, isAttack)
	}
	if !slices.ContainsFunc(want, isFollower) {
		// kube-apiserver may have ended the direct connection before the follower. Through listproxy a refused follower is
		// no harm then.
		got = slices.DeleteFunc(got, func(a account) bool {
			return isFollower(a) && (a.Code == http.StatusUnauthorized || a.Code == http.StatusForbidden)
		})
	}
	if r.followerNotArrived {
		want = slices.DeleteFunc(want, isFollower)
	}
	switch {
	case r.verdict != answeredAsUpstream: // only the follower may have arrived
		want = slices.DeleteFunc(slices.Clone(got), func(a account) bool { return !isFollower(a) })
	case r.hit:
		want = slices.DeleteFunc(want, isAttack)
	case r.mayMiss:
		want = slices.DeleteFunc(want, func(a account) bool {
			return !slices.ContainsFunc(got, func(b account) bool { return gocmp.Equal(a, b) })
		})
	}
	return gocmp.Diff(want, got, cmpopts.EquateEmpty())
}

// isAttack and isFollower tell the requests of an attack apart.
func isAttack(a account) bool   { return a.ID == "1" }
func isFollower(a account) bool { return a.ID == "follower" }

// withoutRepeats returns the accounts without those of reads that listproxy sent once more, since another attack had ended
// the connection to kube-apiserver: kube-apiserver logs the first as timed out.
func withoutRepeats(all []account) []account {
	return slices.CompactFunc(slices.Clone(all), func(a, b account) bool {
		return a.Code == http.StatusGatewayTimeout && gocmp.Equal(a, b)
	})
}
