package differential

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/test/differential/cluster"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// Freshness writes an object to the API server, deletes it again, and looks for both through
// listproxy: a NotOlderThan with the revision must show the write at once, and an Any within the
// bound. That is how a cache that stands still is seen.
func (c *Comparator) Freshness(ctx context.Context, r cluster.Resource, namespace, name string) error {
	revision, err := c.cluster.Create(ctx, r, namespace, name, map[string]any{})
	if err != nil {
		return err
	}
	written := time.Now()
	q := Question{
		Resource: r, Namespace: namespace, User: c.cluster.Users()[0], Header: http.Header{},
		Semantics: NotOlderThan, Representation: JSON, Revision: revision, Answerable: true,
		Query: url.Values{"resourceVersion": {strconv.FormatUint(revision, 10)}},
	}
	here := []byte(`"name":"` + name + `"`)
	if answers, ok := c.compare(ctx, q); ok && answers.proxy.Status == http.StatusOK && !bytes.Contains(answers.proxy.Body, here) {
		c.missing(q, answers.proxy, Missing, "without what was written")
	}
	c.within(ctx, q, written, true, here)
	if err := c.cluster.Remove(ctx, r, namespace, name); err != nil {
		return err
	}
	c.within(ctx, q, time.Now(), false, here)
	return ctx.Err()
}

// giveUp is how long after the bound an Any is waited for that has it, while none from memory has
// not, and how long both sides are asked again while one of them waits for its own cache. It only
// ends what fails.
const giveUp = 5 * time.Minute

// within asks for Any until it shows that the object is there, or that it is not. What was asked
// for later than the bound and comes from memory must show it. What is forwarded may not: it is as
// old as kube-apiserver's own cache, of which nothing is promised. With [Options].OwnOnly it
// decides nothing.
func (c *Comparator) within(ctx context.Context, q Question, since time.Time, want bool, here []byte) {
	q.Semantics, q.Revision = Any, 0
	q.Query = url.Values{"resourceVersion": {"0"}}
	for ctx.Err() == nil {
		asked := time.Since(since)
		answer, err := c.ask(ctx, c.door(), q)
		list := err == nil && answer.Status == http.StatusOK
		own := list && !forwarded(answer)
		switch {
		case list && (own || !c.options.OwnOnly) && bytes.Contains(answer.Body, here) == want:
			c.report.lagged(time.Since(since))
			return
		case asked > c.options.Bound+giveUp && c.options.OwnOnly && !own:
			c.missing(q, answer, Silent, fmt.Sprintf("nothing comes from memory %v after a write: %d, %v", asked, answer.Status, err))
			return
		case own && asked > c.options.Bound, asked > c.options.Bound+giveUp:
			c.missing(q, answer, Frozen, fmt.Sprintf("%v after a write (object there: %v) it does not show: %d, %v", asked, want, answer.Status, err))
			return
		}
		poll.Pause(ctx, 5*time.Millisecond)
	}
}

func (c *Comparator) missing(q Question, a Answer, kind Kind, detail string) {
	c.report.Differs(Difference{Kind: kind, Question: q.String(), CacheStatus: a.Header.Get("Cache-Status"), Detail: detail})
}

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
				answer, err := c.ask(ctx, c.door(), q)
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
