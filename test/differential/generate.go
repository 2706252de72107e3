package differential

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/test/differential/body"
	"github.com/listproxy/listproxy/test/differential/cluster"
)

// recent is the greatest age of a revision that lists name. listproxy keeps revisions for 2m30s.
const recent = 45 * time.Second

// generator makes random questions: lists and watches. It is for one goroutine.
//
// Many lists name the revision of a recent write, which the ledger knows. The methods that need one return ok == false if there
// is no recent write.
type generator struct {
	rng       *rand.Rand
	cluster   *cluster.Cluster
	watchList bool // the API server has streaming lists
	hasShards bool // the API server has sharded lists and watches
}

// oneIn returns true once in n times.
func (g *generator) oneIn(n int) bool { return g.rng.IntN(n) == 0 }

// pick returns one of all at random.
func pick[T any](g *generator, all ...T) T { return all[g.rng.IntN(len(all))] }

// limit returns a random limit of a page.
func (g *generator) limit() string { return pick(g, "1", "2", "3", "7", "50", "500") }

// newQuestion returns the admin's question for all objects of a resource, over a random protocol. Its random headers
// (Accept-Encoding, Audit-Id) do not change the answer's content.
func (g *generator) newQuestion(r cluster.Resource) question {
	q := question{
		Resource: r, User: g.cluster.Users[0], Query: url.Values{}, Header: http.Header{}, HTTP1: g.oneIn(3), Representation: plainJSON,
	}
	switch g.rng.IntN(4) {
	case 0:
		q.Header.Set("Accept-Encoding", "gzip")
	case 1:
		q.Header.Set("Accept-Encoding", pick(g, "gzip, deflate, br", "gzip;q=1.0", "identity", "deflate,gzip", "GZIP"))
	}
	if g.oneIn(4) {
		q.Header.Set("Audit-Id", "differential-"+strconv.Itoa(g.rng.IntN(1e6)))
	}
	return q
}

// newRandomQuestion returns a question by a random user for a random resource or namespace, which may not exist.
func (g *generator) newRandomQuestion() question {
	q := g.newQuestion(pick(g, g.cluster.Resources...))
	switch {
	case !q.Resource.Namespaced:
		if g.oneIn(40) {
			q.Namespace = g.cluster.Namespaces[0] // kube-apiserver has no such path
		}
	case g.oneIn(30):
		q.Namespace = "does-not-exist"
	case !g.oneIn(3):
		q.Namespace = pick(g, g.cluster.Namespaces...)
	}
	if g.oneIn(3) {
		q.User = pick(g, g.cluster.Users...)
	}
	return q
}

// listOf returns a random list of the class. If that is a class of next pages, it returns a first page that a next page may
// follow.
func (g *generator) listOf(c class, r cluster.Resource) (_ question, ok bool) {
	q := g.newQuestion(r)
	if c.Scope == oneNamespace {
		q.Namespace = pick(g, g.cluster.Namespaces...)
	}
	ok = g.setClass(&q, c)
	if c.Page == nextPage {
		q.Query.Set("limit", pick(g, "1", "1", "2", "3")) // small, so that a page follows
	}
	g.setShard(&q)
	return q, ok
}

// randomList returns a random list, which may be odd, or the first page of a walk.
func (g *generator) randomList() (_ question, ok bool) {
	q := g.newRandomQuestion()
	c := class{Representation: plainJSON, Selector: byNothing, part: pick(g, parts...)}
	if g.oneIn(2) {
		c.Representation = pick(g, representations...)
	}
	if g.oneIn(2) {
		c.Selector = pick(g, selectors...)
	}
	ok = g.setClass(&q, c)
	if g.oneIn(6) {
		g.makeOdd(&q)
	} else {
		g.setShard(&q)
	}
	return q, ok
}

// setClass makes a question ask for a list in the representation, with the selector and with the part of a class. The scope
// stays.
func (g *generator) setClass(q *question, c class) (ok bool) {
	g.setRepresentation(q, c.Representation)
	g.setSelectors(q, c.Selector)
	return g.setPart(q, c.part)
}

// setPart makes a question ask for a state and a page.
func (g *generator) setPart(q *question, p part) (ok bool) {
	q.Semantics = p.Semantics
	if p.Page != wholeList {
		q.Query.Set("limit", g.limit())
	}
	switch p.Semantics {
	case anyRevision:
		q.Query.Set("resourceVersion", "0")
		if g.oneIn(2) {
			q.Query.Set("resourceVersionMatch", "NotOlderThan")
		}
		return true
	case consistent:
		return true
	}
	revision, ok := g.cluster.Ledger.Pick(g.rng, q.Resource.GroupResource(), recent)
	if !ok {
		return false
	}
	q.Revision = revision
	q.Query.Set("resourceVersion", strconv.FormatUint(revision, 10))
	switch p.Semantics {
	case notOlderThan:
		// With a limit and without a match, kube-apiserver takes the revision for Exact.
		if q.Query.Has("limit") || g.oneIn(2) {
			q.Query.Set("resourceVersionMatch", "NotOlderThan")
		}
	case exact:
		q.Query.Set("resourceVersionMatch", "Exact")
	}
	return true
}

// followingPage returns the question for the page that follows another one. token is the continue token of that page. Now and
// then followingPage changes what a client may change during a walk: the limit, the representation, the selectors or the scope.
func (g *generator) followingPage(before question, token string) question {
	q := g.newQuestion(before.Resource)
	q.Namespace, q.User = before.Namespace, before.User
	q.Representation = before.Representation
	q.Odd, q.HasAges = before.Odd, before.HasAges
	q.Semantics, q.Origin = continued, before.Origin
	if q.Origin == "" {
		q.Origin = before.Semantics
	}
	q.Query.Set("continue", token)
	if !g.oneIn(15) {
		q.Query.Set("limit", g.limit())
	}
	for _, name := range []string{"Accept", "User-Agent"} {
		if len(before.Header[name]) > 0 {
			q.Header[name] = before.Header[name]
		}
	}
	for _, name := range []string{"labelSelector", "fieldSelector", "pretty"} {
		if before.Query.Has(name) {
			q.Query[name] = before.Query[name]
		}
	}
	if g.oneIn(20) {
		g.setRepresentation(&q, pick(g, representations...))
	}
	if g.oneIn(12) {
		g.setSelectors(&q, pick(g, selectors...))
	}
	if g.oneIn(30) && q.Resource.Namespaced {
		// In another scope the token means another key, or is refused.
		q.Namespace = pick(g, g.cluster.Namespaces...)
		q.Odd = true
	}
	return q
}

// forgedToken returns a question with a continue token that no page had: with a random start, and now and then with an odd
// revision, an unknown version or a text that is no token.
func (g *generator) forgedToken() (_ question, ok bool) {
	q := g.newRandomQuestion()
	g.setRepresentation(&q, pick(g, representations...))
	if g.oneIn(2) {
		g.setSelectors(&q, pick(g, selectors...))
	}
	revision, ok := g.cluster.Ledger.Pick(g.rng, q.Resource.GroupResource(), recent)
	if !ok {
		return q, false
	}
	token := body.Token{Version: "meta.k8s.io/v1", Revision: int64(revision), Start: pick(
		g,
		// Keys of namespaces and objects, those just behind them (\x00), and both ends of the range of keys.
		"/a", "/a/", "/a/a\x00", "a/a\x00", "/team-a", "/team-a/a-0\x00", "/team-b/zz", "/zz\x00", "/\x00", "/", "",
		// Paths that lead out of the resource, or that are not in the normal form.
		"/../secrets/team-a/a", "/a/../b", "//a", "/./a",
		// Characters that need escaping in JSON, or are behind all others.
		"/~", "/a\u2028<&>", "/\U0010ffff",
	)}
	q.Semantics = continued
	switch g.rng.IntN(12) { // in 8 of 12 cases, the token keeps the recent revision
	case 0: // -1 means the newest state
		token.Revision = -1
		q.Semantics = consistent
	case 1:
		token.Revision = 0
	case 2:
		token.Version = "meta.k8s.io/v2"
	case 3: // every negative revision means the newest
		token.Revision = -2
		q.Semantics = consistent
	}
	text := token.Encode()
	switch g.rng.IntN(12) { // in 10 of 12 cases, the text stays
	case 0:
		text += "="
	case 1:
		text = "not a token"
	}
	q.Query.Set("continue", text)
	if g.oneIn(2) {
		q.Query.Set("limit", g.limit())
	}
	q.Odd = true
	return q, true
}
