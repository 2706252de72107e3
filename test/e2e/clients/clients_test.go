package clients

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/logbuffer"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestClients lets all clients run for a while, and then compares what they know.
func TestClients(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sides := []*side{direct, via}
	following := map[*side]map[string]followed{}
	breakers := map[*side]*breaker{}
	followers := map[*side]*side{}
	for _, s := range sides {
		through, b := breakable(t, s)
		following[s], breakers[s], followers[s] = through.follow(), b, through
		start(ctx, t, following[s])
	}

	// While things change: for a time, and on a slow machine until enough has been done.
	busy, rest := context.WithCancel(ctx)
	defer rest()
	var all sync.WaitGroup
	var writes atomic.Int64
	least := int64(duration.Seconds() * perSecond / 50)
	all.Go(func() {
		defer rest()
		poll.Pause(busy, *duration)
		for begun := time.Now(); time.Since(begun) < patience && writes.Load() < least && poll.Pause(busy, 20*time.Millisecond); {
		}
	})
	all.Go(func() { churn(busy, &writes) })
	for _, s := range sides {
		all.Go(func() { breakers[s].run(busy, max(4*time.Second, *duration/10)) })
	}
	all.Wait()
	t.Logf("%d writes", writes.Load())
	if writes.Load() < least {
		t.Errorf("only %d writes, at least %d should be made", writes.Load(), least)
	}

	// At rest.
	t.Run("informers", func(t *testing.T) {
		for name, f := range following[direct] {
			straight, through := f.check(t, "direct", direct), following[via][name].check(t, "via", direct)
			if d := cmp.Diff(straight, through); d != "" {
				t.Errorf("%s (-direct +via):\n%s", name, d)
			}
		}
		for _, s := range sides {
			b := breakers[s]
			t.Logf("%s: %d informers, connections cut %d times, %d watches said to be expired, %d lists, %d streaming lists",
				s.name, len(following[s]), b.cuts, b.gone.Load(), b.lists.Load(), b.stream.Load())
			if *duration > 10*time.Second && (b.gone.Load() == 0 || b.cuts == 0) {
				t.Errorf("%s: nothing was broken", s.name)
			}
			if b.lists.Load() == 0 || b.stream.Load() == 0 {
				t.Errorf("%s: no lists of one kind", s.name)
			}
		}
	})
	for _, s := range sides {
		informers := followers[s].origins
		t.Logf("%s: from memory %v lists, %v streaming lists, %v watches", s.name, &informers.lists, &informers.streams, &informers.watches)
	}
	informers := followers[via].origins
	for what, o := range map[string]*origin{"list": &informers.lists, "streaming list": &informers.streams, "watch": &informers.watches} {
		if o.hits.Load() == 0 {
			t.Errorf("no %s came from memory", what)
		}
	}
}

// TestKubectlWatches has kubectl watch, straight and through listproxy, while objects are created.
// Nothing else runs beside it: at the end of TestClients nothing may be written.
func TestKubectlWatches(t *testing.T) {
	const count = 20
	client := direct.Dynamic.Resource(configMaps).Namespace(watched)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	outs := make([]*logbuffer.Buffer, 2)
	for i, s := range []*side{direct, via} {
		outs[i] = &logbuffer.Buffer{}
		command := newKubectl(t, s).command(ctx, outs[i], "get", "configmaps", "-n", watched, "--watch", "-l", "tier", "--output-watch-events",
			"-o", `jsonpath={.type} {.object.metadata.name} {.object.metadata.resourceVersion}{"\n"}`)
		all.Go(func() {
			if err := command.Run(); ctx.Err() == nil {
				t.Errorf("%s: kubectl ended: %v", s.name, err)
			}
		})
	}
	// told waits until both have told something so often.
	told := func(what string, often int) {
		t.Helper()
		line := regexp.MustCompile(`(?m)^` + what + ` .*\n`)
		if !poll.Came(t, patience, func() bool {
			return !slices.ContainsFunc(outs, func(s *logbuffer.Buffer) bool { return len(line.FindAllString(s.String(), -1)) < often })
		}) {
			t.Fatalf("not %d times %s:\n%s\n%s", often, what, outs[0], outs[1])
		}
	}
	// Objects that are there at the beginning are told like those that come: in the order of names.
	rng := rand.New(rand.NewPCG(*seed, 7))
	for i := range count {
		expect.NoError(t, create(ctx, client, object(rng, configMaps, fmt.Sprintf("watched-%02d", i))))
		if !poll.Pause(ctx, 100*time.Millisecond) {
			return
		}
	}
	told("ADDED", count)
	// What follows is the end: whatever was told before is there, and nothing may be that is too
	// much.
	expect.NoError(t, client.Delete(ctx, "watched-00", metav1.DeleteOptions{}))
	told("DELETED", 1)
	cancel()
	all.Wait()
	got := outs[1].String()
	if d := cmp.Diff(outs[0].String(), got); d != "" || strings.Count(got, "ADDED") != count {
		t.Errorf("%d lines, want %d (-direct +via):\n%s", strings.Count(got, "ADDED"), count, d)
	}
}
