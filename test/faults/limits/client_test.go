package limits

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// client asks one server. Its requests take as long as they take.
type client struct{ *ask.Client }

// get reads a list, and says whether it came from memory.
func (c client) get(ctx context.Context, target string) (body []byte, fromMemory bool, err error) {
	a, err := c.Do(ctx, http.MethodGet, target, nil)
	return a.Body, a.FromMemory(), err
}

// await reads a list until it comes from memory.
func (c client) await(ctx context.Context, target string) (body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience) // of a request that hangs, too
	defer cancel()
	err = poll.Try(ctx, patience, 50*time.Millisecond, target+" from memory", func() error {
		got, fromMemory, err := c.get(ctx, target)
		if err == nil && !fromMemory {
			err = errors.New("it was forwarded")
		}
		body = got
		return err
	})
	return body, err
}

// reviewed reads a list, again for as long as the review of what the caller may fails: that says
// nothing of what is in memory.
func (c client) reviewed(ctx context.Context, target string) (a ask.Answer, err error) {
	poll.Reviewed(ctx, patience, func() string {
		a, err = c.Do(ctx, http.MethodGet, target, nil)
		return a.Source()
	})
	return a, err
}
