package discovery

import (
	"context"
	"errors"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/listproxy/listproxy/snapshot/clock"
)

// errListAgain ends a Reflector's attempt: it lists before it watches again.
var errListAgain = errors.New("what was missed since the stream broke is listed")

// listAfterBreaks makes a Reflector list again, unless a watch directly follows a list, or a watch
// that ended at its timeout. A Reflector by itself goes on from the revision that it knows when its
// connection was cut or refused, as happens when API servers are restarted. If etcd was restored to
// an earlier state meanwhile, that revision may lie in the future: kube-apiserver accepts such a
// watch, but sends nothing until the revision is reached. Or the revision was reached again in
// another past, and the changes before it are never sent. So the Reflector must list first. (It
// asks for a list not older than the revision that it knows. If kube-apiserver refuses that,
// because the revision lies in the future, the Reflector lists the newest state.) With always, it
// lists again after a watch's timeout, too.
func listAfterBreaks(source *cache.ListWatch, always bool) *cache.ListWatch {
	var c continuity
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := source.ListWithContextFunc(ctx, options)
			if err == nil {
				c.end(c.begin(), time.Now())
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			lists := options.SendInitialEvents != nil && *options.SendInitialEvents
			over, asked := c.over(), time.Now()
			this := c.begin()
			if !lists && broken(over) {
				return nil, errListAgain
			}
			stream, err := source.WatchFuncWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			if !lists && broken(over) {
				stream.Stop()
				return nil, errListAgain
			}
			life := clock.Lifetime{Asked: asked, Answered: time.Now()}
			if options.TimeoutSeconds != nil {
				life.Timeout = time.Duration(*options.TimeoutSeconds) * time.Second
			}
			return tellEnd(stream, func() {
				if at, inOrder := life.Ended(time.Now()); inOrder && life.Timeout > 0 && !always {
					c.end(this, at)
				}
			}), nil
		},
	}
}

// broken says whether the next watch needs a new list before it. It does if the stream before did
// not end normally (over is zero), or if it ended at over and too much time has passed since.
func broken(over time.Time) bool {
	return over.IsZero() || clock.InDoubt(over, time.Now())
}

// continuity knows when the newest list or watch was over, if it ended normally.
type continuity struct {
	mu     sync.Mutex
	newest int
	at     time.Time // zero: it is not over, or it broke
}

// begin notes that there is another one, and returns its number.
func (c *continuity) begin() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest++
	c.at = time.Time{}
	return c.newest
}

// end records when one ended normally.
func (c *continuity) end(number int, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if number == c.newest { // else its end was heard late
		c.at = at
	}
}

func (c *continuity) over() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}
