package discovery

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/listproxy/listproxy/telemetry"
)

const (
	// followHealthy is how long a stream must last so that it does not count as a failure.
	followHealthy = time.Minute
	// refusedRetry is the longest pause after a stream was refused, until somebody grants the right.
	refusedRetry = 5 * time.Minute
	// soonest is the longest pause between two attempts to open a stream that must be back soon, plus
	// up to half of it.
	soonest = 2 * time.Second
)

// follower keeps a store up to date with a resource.
type follower struct {
	name         string
	listWatch    *cache.ListWatch
	expectedType runtime.Object
	store        cache.ReflectorStore
	// ended is called with the error that ended the stream; with nil if the revision was too old, or
	// if the stream broke and the resource is listed again.
	ended func(error)
	// refusal, unless it is empty, is logged once if the stream is refused: what follows from that.
	// grant is the right that would help.
	refusal, grant string
	// soon: the stream must be back as soon as the upstream is. Otherwise there is up to a minute
	// between two attempts.
	soon bool
	// lists: each stream begins with a list, also after a watch that came to its timeout.
	lists bool
	// heard, if it is not nil, is the store's; and a stream that is silent for too long is closed, and
	// begins again with a list.
	heard *heard
	log   *slog.Logger
}

// follow runs a client-go Reflector until ctx ends. It has a loop of its own around the Reflector,
// whose own loop retries at least every minute, even if the right is missing. After a stream that
// broke the resource is listed again.
func (f follower) follow(ctx context.Context) {
	logger := logr.FromSlogHandler(telemetry.Libraries(f.log).Handler())
	ctx = logr.NewContext(ctx, logger)
	options := cache.ReflectorOptions{Logger: &logger, Name: f.name}
	if f.soon {
		reopen := newFollowBackoff(f.soon)
		options.Backoff = &reopen
	}
	reflector := cache.NewReflectorWithOptions(listAfterBreaks(f.listWatch, f.lists), f.expectedType, f.store, options)

	backoff, refusals := newFollowBackoff(f.soon), newRefusalBackoff()
	said := f.refusal == ""
	for ctx.Err() == nil {
		began := time.Now()
		err := f.stream(ctx, reflector)
		if ctx.Err() != nil {
			return
		}
		again := errors.Is(err, errListAgain)
		if again {
			err = nil
		}
		f.ended(err)
		if isRefused(err) && !said {
			f.log.WarnContext(ctx, f.refusal, "grant", f.grant, "error", err)
			said = true
		}
		healthy := time.Since(began) >= followHealthy
		if healthy {
			backoff, refusals = newFollowBackoff(f.soon), newRefusalBackoff()
		}
		var delay time.Duration
		switch {
		case isRefused(err):
			delay = refusals.Step()
		case again && healthy: // as a watch that goes on: at once
		default:
			delay = backoff.Step()
			if err != nil {
				f.log.WarnContext(ctx, "a stream ended and will be opened again", "stream", f.name, "in", delay, "error", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
	}
}

// stream lists and watches until the watch ends or is silent for too long.
func (f follower) stream(ctx context.Context, reflector *cache.Reflector) error {
	if f.heard == nil {
		return reflector.ListAndWatchWithContext(ctx)
	}
	live, stop := f.heard.untilSilent(ctx)
	defer stop()
	err := reflector.ListAndWatchWithContext(live)
	if err == nil && live.Err() != nil {
		return errListAgain
	}
	return err
}

// newFollowBackoff returns delays of one second, doubled up to half a minute, or shorter ones.
func newFollowBackoff(soon bool) wait.Backoff {
	if soon {
		return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 3, Cap: soonest}
	}
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 6, Cap: 30 * time.Second}
}

// newRefusalBackoff returns delays of one second, doubled up to refusedRetry: an
// API server that has just started refuses everybody until it has read its
// roles, and one that goes on refusing is to be left alone.
func newRefusalBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: refusedRetry}
}

// isRefused says whether the upstream answered that this is not ours to read,
// or not there to be read: trying again soon will not change it.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// listWatchOf lists and watches the objects of a client.
func listWatchOf[L runtime.Object](objects interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
},
) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, options)
		},
		WatchFuncWithContext: objects.Watch,
	}
}

// tellStreams makes source call opened when a watch was opened, and lost when one has ended and before
// another is opened, so perhaps twice. (The Reflector does not tell: while the upstream is away, it
// goes on trying.) There is one watch at a time.
//
// follows says that the watch goes on from what is known, since it comes after a list or another
// watch. A watch that sends the whole state first (a streaming list) does not: it has sent nothing
// yet. It counts once the state has come, with the store's Replace, unless it has ended before.
func tellStreams(source *cache.ListWatch, opened func(follows bool), lost func()) {
	open := source.WatchFuncWithContext
	var mu sync.Mutex
	streams := 0
	source.WatchFuncWithContext = func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		mu.Lock()
		streams++
		this := streams
		lost() // the end of the one before may not have been noticed yet
		mu.Unlock()
		stream, err := open(ctx, options)
		if err != nil {
			return nil, err
		}
		opened(options.SendInitialEvents == nil)
		return tellEnd(stream, func() {
			mu.Lock()
			defer mu.Unlock()
			if this == streams { // else that was told
				lost()
			}
		}), nil
	}
}

// endTeller is a watch that reports when it has ended.
type endTeller struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	ended   func()
	stop    sync.Once
}

// tellEnd returns the watch w, which calls ended once when it has ended, or before its Stop returns:
// the Reflector does not say so before it has opened the next one.
func tellEnd(w watch.Interface, ended func()) watch.Interface {
	ended = sync.OnceFunc(ended)
	e := &endTeller{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{}), ended: ended}
	go func() {
		defer close(e.events)
		defer ended()
		for event := range w.ResultChan() {
			select {
			case e.events <- event:
			case <-e.stopped:
				return
			}
		}
	}()
	return e
}

// ResultChan implements watch.Interface.
func (e *endTeller) ResultChan() <-chan watch.Event { return e.events }

// Stop implements watch.Interface.
func (e *endTeller) Stop() {
	e.stop.Do(func() { close(e.stopped) })
	e.ended()
	e.Interface.Stop()
}
