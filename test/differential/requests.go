package differential

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// recent is how old a revision may be that a generator asks for; listproxy keeps 2m30s.
const recent = 45 * time.Second

// Generator makes up questions. It is for one goroutine.
type Generator struct {
	rng       *rand.Rand
	resources []Resource
	spaces    []string
	users     []User
	ledger    *Ledger
}

// limits that are asked for, on their own and changed on the way.
func (g *Generator) limit() string {
	return strconv.Itoa([]int{1, 2, 3, 7, 50, 500}[g.rng.IntN(6)])
}

func (g *Generator) one(n int) bool { return g.rng.IntN(n) == 0 }

// scope chooses what is listed, and by whom.
func (g *Generator) scope() Question {
	q := Question{
		Resource: g.resources[g.rng.IntN(len(g.resources))],
		Query:    url.Values{},
		Header:   http.Header{},
		HTTP1:    g.one(3),
		User:     g.users[0], // admin
	}
	switch {
	case !q.Resource.Namespaced:
		if g.one(40) {
			q.Namespace = g.spaces[0] // there is no such list
		}
	case g.one(30):
		q.Namespace = "does-not-exist"
	case !g.one(3):
		q.Namespace = g.spaces[g.rng.IntN(len(g.spaces))]
	}
	if g.one(3) {
		q.User = g.users[g.rng.IntN(len(g.users))]
	}
	q.Answerable = q.Resource.Cached && q.User.lists(q.Resource, q.Namespace) && (q.Resource.Namespaced || q.Namespace == "")
	g.header(&q)
	return q
}

// header chooses what changes the form of an answer.
func (g *Generator) header(q *Question) {
	switch g.rng.IntN(4) {
	case 0:
		q.Header.Set("Accept", "application/json")
	case 1:
		q.Header.Set("Accept", []string{"*/*", "application/json, */*", "application/json;q=0.5", "application/json , application/yaml"}[g.rng.IntN(4)])
	}
	switch g.rng.IntN(4) {
	case 0:
		q.Header.Set("Accept-Encoding", "gzip")
	case 1:
		q.Header.Set("Accept-Encoding", []string{"gzip, deflate, br", "gzip;q=1.0", "identity", "deflate,gzip", "GZIP"}[g.rng.IntN(5)])
	}
	if g.one(4) {
		q.Header.Set("Audit-Id", "differential-"+strconv.Itoa(g.rng.IntN(1e6)))
	}
}

// Question makes up a question, or none if nothing is known yet that could be asked for.
func (g *Generator) Question() (Question, bool) {
	q := g.scope()
	if !g.semantics(&q) {
		return q, false
	}
	if g.one(6) {
		g.oddity(&q)
	}
	return q, true
}

// semantics chooses which state is asked for.
func (g *Generator) semantics(q *Question) bool {
	pick := g.rng.IntN(20)
	if g.one(2) {
		q.Query.Set("limit", g.limit())
	}
	if pick < 5 {
		q.Semantics = Any
		q.Query.Set("resourceVersion", "0")
		if g.one(2) {
			q.Query.Set("resourceVersionMatch", "NotOlderThan")
		}
		return true
	}
	if pick < 6 {
		q.Semantics = MostRecent
		q.Answerable = false
		return true
	}
	revision, ok := g.ledger.Pick(g.rng, q.Resource.GroupResource(), recent)
	if !ok {
		return false
	}
	q.Revision = revision
	q.Query.Set("resourceVersion", strconv.FormatUint(revision, 10))
	switch {
	case pick < 11:
		q.Semantics = NotOlderThan
		// Without a limit the match may be left out; with one that would mean Exact.
		if q.Query.Has("limit") || g.one(2) {
			q.Query.Set("resourceVersionMatch", "NotOlderThan")
		}
	case pick < 14:
		q.Semantics = Legacy
		q.Query.Set("limit", g.limit())
	default:
		q.Semantics = Exact
		q.Query.Set("resourceVersionMatch", "Exact")
	}
	return true
}

// Walk makes up the first question of a walk.
func (g *Generator) Walk() (Question, bool) {
	for range 20 {
		q := g.scope()
		if g.semantics(&q) && q.Semantics != Any {
			q.Query.Set("limit", []string{"1", "2", "3", "7", "50"}[g.rng.IntN(5)])
			if q.Semantics == NotOlderThan {
				q.Query.Set("resourceVersionMatch", "NotOlderThan")
			}
			return q, true
		}
	}
	return Question{}, false
}

// Next makes up how a walk goes on after a page, with its token.
func (g *Generator) Next(q Question, token string) Question {
	q.Query = url.Values{"continue": {token}}
	q.Semantics, q.Revision = Continue, 0
	if !g.one(15) {
		q.Query.Set("limit", g.limit())
	}
	q.HTTP1 = g.one(3)
	q.Header = http.Header{}
	g.header(&q)
	q.Answerable = q.Resource.Cached && q.User.lists(q.Resource, q.Namespace)
	return q
}

// Forged makes up a continuation that no page had.
func (g *Generator) Forged() (Question, bool) {
	q := g.scope()
	revision, ok := g.ledger.Pick(g.rng, q.Resource.GroupResource(), recent)
	if !ok {
		return q, false
	}
	t := token{Version: "meta.k8s.io/v1", Revision: int64(revision)}
	starts := []string{
		"/a", "/a/", "/a/a\x00", "a/a\x00", "/team-a", "/team-a/a-0\x00", "/team-b/zz", "/zz\x00", "/\x00", "/", "",
		"/../secrets/team-a/a", "/a/../b", "//a", "/./a", "/~", "/a\u2028<&>", "/\U0010ffff",
	}
	t.Start = starts[g.rng.IntN(len(starts))]
	q.Semantics = Continue
	switch g.rng.IntN(12) {
	case 0:
		t.Revision, q.Semantics = -1, MostRecent
	case 1:
		t.Revision = 0
	case 2:
		t.Version = "meta.k8s.io/v2"
	case 3:
		t.Revision, q.Semantics = -2, MostRecent
	}
	text := t.encode()
	switch g.rng.IntN(12) {
	case 0:
		text += "="
	case 1:
		text = "not a token"
	}
	q.Query.Set("continue", text)
	if g.one(2) {
		q.Query.Set("limit", g.limit())
	}
	q.Answerable = false // some are
	return q, true
}
