package differential

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/differential/cluster"
)

// recent is how old a revision may be that a generator asks for; listproxy keeps 2m30s.
const recent = 45 * time.Second

// Generator makes up questions. It is for one goroutine.
type Generator struct {
	rng       *rand.Rand
	resources []cluster.Resource
	spaces    []string
	users     []cluster.User
	ledger    *cluster.Ledger
	everybody bool // asks as often as the admin
	// consistent: the newest state is to come from memory.
	consistent bool
	deck       *deck
}

// limits that are asked for, on their own and changed on the way.
func (g *Generator) limit() string {
	return strconv.Itoa([]int{1, 2, 3, 7, 50, 500}[g.rng.IntN(6)])
}

func (g *Generator) one(n int) bool { return g.rng.IntN(n) == 0 }

// scope chooses what is listed, by whom, and in which form.
func (g *Generator) scope() Question {
	q := g.subject()
	g.form(&q)
	return q
}

// Subject makes up who asks for what, with selectors of a kind, in no representation yet and of no
// state.
func (g *Generator) Subject(kind Selector) Question {
	q := g.subject()
	g.header(&q)
	g.selectBy(&q, kind)
	return q
}

// subject chooses what is listed, and by whom.
func (g *Generator) subject() Question {
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
	if g.everybody || g.one(3) {
		q.User = g.users[g.rng.IntN(len(g.users))]
	}
	return q
}

// form chooses the representation and the selectors, and what else changes the form of an answer.
func (g *Generator) form(q *Question) {
	g.header(q)
	if g.one(2) {
		g.represent(q, JSON)
	} else {
		g.represent(q, representations[g.rng.IntN(len(representations))])
	}
	if g.one(2) {
		g.selectBy(q, selectorKinds[g.rng.IntN(len(selectorKinds))])
	}
}

// header chooses what does not change an answer, but how it is sent.
func (g *Generator) header(q *Question) {
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
	if !g.semantics(&q, g.someMoment()) {
		return q, false
	}
	q.Answerable = q.memory(g.consistent)
	if g.one(6) {
		g.oddity(&q)
	}
	return q, true
}

// Dealt makes up a question of a class, or the first of a walk to a page of it.
func (g *Generator) Dealt(class Class, r cluster.Resource) (Question, bool) {
	q := Question{Resource: r, User: g.users[0], Query: url.Values{}, Header: http.Header{}, HTTP1: g.one(3)}
	if class.Scope == OneNamespace {
		q.Namespace = g.pick(g.spaces)
	}
	g.header(&q)
	g.represent(&q, class.Representation)
	g.selectBy(&q, class.Selector)
	m := moment{class.Semantics, class.Page}
	if m.page == Next {
		m.page = First
	}
	if !g.semantics(&q, m) {
		return q, false
	}
	if class.Page == Next {
		q.Query.Set("limit", g.pick([]string{"1", "1", "2", "3"})) // else nothing might follow
	}
	q.Answerable = q.memory(g.consistent)
	return q, true
}

// someMoment chooses which state is asked for, and whether with a limit.
func (g *Generator) someMoment() moment {
	page := []Page{Whole, First}[g.rng.IntN(2)]
	switch pick := g.rng.IntN(20); {
	case pick < 5:
		return moment{Any, page}
	case pick < 6:
		return moment{MostRecent, page}
	case pick < 11:
		return moment{NotOlderThan, page}
	case pick < 14:
		return moment{Legacy, First}
	}
	return moment{Exact, page}
}

// semantics asks for a state. It is false if none is known that could be asked for.
func (g *Generator) semantics(q *Question, m moment) bool {
	q.Semantics = m.semantics
	if m.page != Whole {
		q.Query.Set("limit", g.limit())
	}
	switch m.semantics {
	case Any:
		q.Query.Set("resourceVersion", "0")
		if g.one(2) {
			q.Query.Set("resourceVersionMatch", "NotOlderThan")
		}
		return true
	case MostRecent:
		return true
	}
	revision, ok := g.ledger.Pick(g.rng, q.Resource.GroupResource(), recent)
	if !ok {
		return false
	}
	q.Revision = revision
	q.Query.Set("resourceVersion", strconv.FormatUint(revision, 10))
	switch m.semantics {
	case NotOlderThan:
		// Without a limit the match may be left out; with one that would mean Exact.
		if q.Query.Has("limit") || g.one(2) {
			q.Query.Set("resourceVersionMatch", "NotOlderThan")
		}
	case Exact:
		q.Query.Set("resourceVersionMatch", "Exact")
	}
	return true
}

// Walk makes up the first question of a walk.
func (g *Generator) Walk() (Question, bool) {
	for range 20 {
		q := g.scope()
		m := g.someMoment()
		m.page = First
		if m.semantics != Any && g.semantics(&q, m) {
			q.Answerable = q.memory(g.consistent)
			return q, true
		}
	}
	return Question{}, false
}

// Next makes up how a walk goes on after a page, with its token. Now and then it changes what may
// be changed on the way.
func (g *Generator) Next(q Question, token string) Question {
	before := q.Query
	if q.Origin == "" {
		q.Origin = q.Semantics
	}
	q.Query = url.Values{"continue": {token}}
	q.Semantics, q.Revision = Continue, 0
	if !g.one(15) {
		q.Query.Set("limit", g.limit())
	}
	q.HTTP1 = g.one(3)
	header := q.Header
	q.Header = http.Header{}
	g.header(&q)
	for _, name := range []string{"Accept", "User-Agent"} {
		if len(header[name]) > 0 {
			q.Header[name] = header[name]
		}
	}
	for _, name := range []string{"labelSelector", "fieldSelector", "pretty"} {
		if before.Has(name) {
			q.Query[name] = before[name]
		}
	}
	if g.one(20) {
		g.represent(&q, representations[g.rng.IntN(len(representations))])
	}
	if g.one(12) {
		g.selectBy(&q, selectorKinds[g.rng.IntN(len(selectorKinds))])
	}
	if g.one(30) && q.Resource.Namespaced {
		// A token is only a place: in another scope it means another one, or is refused.
		q.Namespace = g.pick(g.spaces)
		q.Odd = true
	}
	q.Answerable = q.memory(g.consistent)
	return q
}

// Forged makes up a continuation that no page had.
func (g *Generator) Forged() (Question, bool) {
	q := g.scope()
	revision, ok := g.ledger.Pick(g.rng, q.Resource.GroupResource(), recent)
	if !ok {
		return q, false
	}
	t := body.Token{Version: "meta.k8s.io/v1", Revision: int64(revision)}
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
	text := t.Encode()
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
	q.Odd = true // and some are answered
	return q, true
}

// NewGenerator returns a generator of questions about this cluster.
func NewGenerator(c *cluster.Cluster, rng *rand.Rand, o Options) *Generator {
	g := &Generator{rng: rng, spaces: c.Namespaces, users: c.Users(), ledger: c.Ledger, everybody: o.Everybody, consistent: o.Consistent}
	for _, r := range c.Resources {
		if len(o.Resources) == 0 || slices.Contains(o.Resources, r.Resource) {
			g.resources = append(g.resources, r)
		}
	}
	return g
}
