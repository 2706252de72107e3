package limits

import (
	"context"
	"net/http"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// reviewed reads a list, again for as long as the review of what the caller may fails: that says nothing of what is in
// memory.
func (c client) reviewed(ctx context.Context, target string) (a ask.Answer, err error) {
	poll.Reviewed(ctx, patience, func() string {
		a, err = c.Do(ctx, http.MethodGet, target, nil)
		return a.Source()
	})
	return a, err
}
