package differential

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/listproxy/listproxy/test/poll"
)

// Warm asks for every resource that is kept in memory, in some representations, until it comes from
// there: a representation is fed only from its first use on, and what is forwarded until then would
// count as missed.
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
	return nil
}
