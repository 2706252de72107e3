package differential

import "context"

// maxPages ends walks of one object a page.
const maxPages = 40

// walk compares every page of a list. Each page is asked of both sides, and the token for the next
// is taken from either: tokens are interchangeable, and so is the one who goes on.
func (c *Comparator) walk(ctx context.Context, g *Generator) {
	q, ok := g.Walk()
	if !ok || c.options.PlainOnly && !q.Answerable {
		return
	}
	for range maxPages {
		answers, ok := c.compare(ctx, q)
		if !ok || answers.proxy.Status >= 300 {
			return
		}
		from := answers.proxy
		if g.one(2) && answers.direct.Status < 300 {
			from = answers.direct
		}
		meta, err := listMeta(from.Body)
		if err != nil {
			c.report.differs(Difference{Kind: Body, Question: q.String(), Detail: err.Error()})
			return
		}
		if meta.Continue == "" {
			break
		}
		q = g.Next(q, meta.Continue)
		if g.one(30) && q.Resource.Namespaced {
			// A token is only a place: in another scope it means another one, or is refused.
			q.Namespace = g.spaces[g.rng.IntN(len(g.spaces))]
			q.Answerable = false
		}
	}
	c.report.count(&c.report.walks)
}
