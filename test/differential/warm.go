package differential

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// warm asks for every resource that is kept in memory, in all representations, until it comes from
// there: a representation is fed only from its first use on, and what is forwarded until then would
// count as missed. So would an exact revision from before, which is not asked for any more.
func (c *comparator) warm(ctx context.Context) error {
	var all []question
	for _, representation := range representations {
		for _, r := range c.cluster.Resources {
			q := anyOf(r, c.cluster.Users[0])
			q.Representation = representation
			if accept := accepts(r, representation)[0]; accept != "" {
				q.Header.Set("Accept", accept)
			}
			all = append(all, q)
			_, _ = c.proxy.ask(ctx, q) // all begin to load
		}
	}
	err := c.hits(ctx, all)
	c.cluster.Ledger.Begin()
	return err
}

// caughtUp asks for every resource that is kept in memory until the revision of the last write to
// any of them comes from there, and an anyRevision too: what listproxy is late for, it only is for a while.
// There must have been a write a moment ago: old revisions are not kept.
func (c *comparator) caughtUp(ctx context.Context) error {
	revision, admin := c.cluster.Ledger.NewestOfAll(), c.cluster.Users[0]
	var exacts, anys []question
	for _, r := range c.cluster.Resources {
		exacts, anys = append(exacts, exactly(r, "", admin, revision)), append(anys, anyOf(r, admin))
	}
	return c.hits(ctx, append(exacts, anys...))
}

func anyOf(r cluster.Resource, user cluster.User) question {
	return question{Resource: r, User: user, Semantics: anyRevision, Query: url.Values{"resourceVersion": {"0"}}, Header: http.Header{}}
}

// hits asks each question that is to be answered from memory until it is.
func (c *comparator) hits(ctx context.Context, questions []question) error {
	for _, q := range questions {
		if !q.memory() {
			continue
		}
		err := poll.Retry(ctx, q.String()+" to come from memory", func() error {
			a, err := c.proxy.ask(ctx, q)
			if err == nil && !a.FromMemory() {
				err = fmt.Errorf("%d, %q", a.Code, a.Source())
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
