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
	for _, representation := range representations {
		err := c.hits(ctx, func(r cluster.Resource) question {
			q := anyOf(r, c.cluster.Users[0])
			if accept := accepts(r, representation)[0]; accept != "" {
				q.Header.Set("Accept", accept)
			}
			return q
		})
		if err != nil {
			return err
		}
	}
	c.cluster.Ledger.Begin()
	return nil
}

// caughtUp asks for every resource that is kept in memory until the revision of the last write to
// any of them comes from there, and an anyRevision too: what listproxy is late for, it only is for a while.
// There must have been a write a moment ago: old revisions are not kept.
func (c *comparator) caughtUp(ctx context.Context) error {
	revision, admin := c.cluster.Ledger.NewestOfAll(), c.cluster.Users[0]
	err := c.hits(ctx, func(r cluster.Resource) question { return exactly(r, "", admin, revision) })
	if err != nil {
		return err
	}
	return c.hits(ctx, func(r cluster.Resource) question { return anyOf(r, admin) })
}

func anyOf(r cluster.Resource, user cluster.User) question {
	return question{Resource: r, User: user, Semantics: anyRevision, Query: url.Values{"resourceVersion": {"0"}}, Header: http.Header{}}
}

// hits asks for every resource that is kept in memory until the answer comes from there.
func (c *comparator) hits(ctx context.Context, of func(cluster.Resource) question) error {
	for _, r := range c.cluster.Resources {
		if !r.Cached {
			continue
		}
		q := of(r)
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
