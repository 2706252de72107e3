package differential

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/listproxy/listproxy/test/harness/poll"
)

// Warm asks for every resource that is kept in memory, in some representations, until it comes from
// there: a representation is fed only from its first use on, and what is forwarded until then would
// count as missed. So would an exact revision from before, which is not asked for any more.
func (c *Comparator) Warm(ctx context.Context, all ...Representation) error {
	for _, r := range c.cluster.Resources {
		for _, representation := range all {
			q := Question{
				Resource: r, User: c.cluster.Users()[0], Semantics: Any, Representation: representation,
				Query: url.Values{"resourceVersion": {"0"}}, Header: http.Header{},
			}
			if forms := accepts(r, representation); r.Cached && forms[0] != "" {
				q.Header.Set("Accept", forms[0])
			}
			for r.Cached {
				answer, err := c.proxy.Ask(ctx, q)
				if err == nil && strings.HasPrefix(answer.Header.Get("Cache-Status"), "listproxy; hit") {
					break
				}
				if !poll.Pause(ctx, 50*time.Millisecond) {
					return fmt.Errorf("%s does not come from memory: %d, %q, %w", q, answer.Status, answer.Header.Get("Cache-Status"), err)
				}
			}
		}
	}
	c.cluster.Ledger.Begin()
	return nil
}

// CaughtUp asks for every resource that is kept in memory until the revision of the last write to
// any of them comes from there, and an Any too: what listproxy is late for, it only is for a while.
// There must have been a write a moment ago: old revisions are not kept.
func (c *Comparator) CaughtUp(ctx context.Context) error {
	revision := c.cluster.Ledger.NewestOfAll()
	for _, r := range c.cluster.Resources {
		if !r.Cached {
			continue
		}
		for _, want := range []struct {
			hit   string
			query url.Values
		}{
			{"listproxy; hit; detail=exact", Exactly(revision)},
			{"listproxy; hit; detail=any", url.Values{"resourceVersion": {"0"}}},
		} {
			for {
				answer, err := c.ProxyAnswer(ctx, r, "", c.cluster.Users()[0], want.query)
				status := answer.Header.Get("Cache-Status")
				if err == nil && status == want.hit {
					break
				}
				if !poll.Pause(ctx, 20*time.Millisecond) {
					return fmt.Errorf("%s at %d does not come from memory: %d, %q, not %q, %w", r.Resource, revision, answer.Status, status, want.hit, err)
				}
			}
		}
	}
	return nil
}
