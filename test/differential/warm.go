package differential

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// warmUp asks for every resource in every representation until it comes from memory. (listproxy loads a representation when it
// is first asked for.) Memory has no states from before, so tests then pick only revisions from now on.
func (c *comparator) warmUp(ctx context.Context) error {
	var all []question
	for _, representation := range representations {
		for _, r := range c.cluster.Resources {
			q := atAnyRevision(r, c.cluster.Users[0])
			q.Representation = representation
			if accept := acceptHeaders(r, representation)[0]; accept != "" {
				q.Header.Set("Accept", accept)
			}
			all = append(all, q)
			_, _ = c.proxy.ask(ctx, q) // begin all loads before waiting for any
		}
	}
	err := c.awaitHits(ctx, all)
	c.cluster.Ledger.PickFromNow()
	return err
}

// awaitCaughtUp waits until memory has every resource at the revision of the last write of any resource. So memory may be
// behind, but not for ever. The last write must be recent, since memory does not keep old revisions.
func (c *comparator) awaitCaughtUp(ctx context.Context) error {
	revision := c.cluster.Ledger.NewestOfAll()
	admin := c.cluster.Users[0]
	var all []question
	for _, r := range c.cluster.Resources {
		all = append(all, exactly(r, "", admin, revision), atAnyRevision(r, admin))
	}
	return c.awaitHits(ctx, all)
}

// atAnyRevision returns the question for a list of the whole resource at any revision (resourceVersion=0).
func atAnyRevision(r cluster.Resource, user cluster.User) question {
	return question{Resource: r, User: user, Semantics: anyRevision, Query: url.Values{"resourceVersion": {"0"}}, Header: http.Header{}}
}

// awaitHits asks each question that should be answered from memory until its answer comes from there.
func (c *comparator) awaitHits(ctx context.Context, questions []question) error {
	for _, q := range questions {
		if !q.shouldHit() {
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
