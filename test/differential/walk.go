package differential

import (
	"context"

	"github.com/listproxy/listproxy/test/differential/body"
)

// maxPages ends walks of one object a page.
const maxPages = 40

// walk compares the pages of a list, from a first question on, and returns how many it had. Each
// page is asked of both sides, and the token for the next is taken from either: tokens are
// interchangeable, and so is the one who goes on.
func (c *Comparator) walk(ctx context.Context, g *Generator, q Question, most int) (pages int) {
	for range most {
		answers, ok := c.compare(ctx, q)
		if !ok || answers.proxy.Status >= 300 {
			return pages
		}
		pages++
		from := answers.proxy
		if g.one(2) && answers.direct.Status < 300 {
			from = answers.direct
		}
		meta, err := body.ListMeta(from.Body)
		if err != nil {
			c.report.differs(Difference{Kind: Body, Question: q.String(), Detail: err.Error()})
			return pages
		}
		if meta.Continue == "" {
			break
		}
		q = g.Next(q, meta.Continue)
	}
	c.report.count(&c.report.walks)
	return pages
}
