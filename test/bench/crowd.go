package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/soak"
)

// runCrowd measures many clients that send the same request at once, at each of these sides:
//   - kube-apiserver itself
//   - a warm listproxy, which has pods in memory
//   - a cold listproxy, which nobody has asked before
func runCrowd(ctx context.Context, b *bench) error {
	listPods := controlplane.Grant{
		To:    []string{controlplane.TeamB + "/" + agentName},
		Rules: []rbacv1.PolicyRule{controlplane.Rule("list", "", "pods")},
	}
	if err := b.cp.GrantAll(ctx, listPods); err != nil {
		return err
	}
	warm, err := b.startSide(ctx, "listproxy", "--watches", "--consistent-lists=true", "--eager", "pods")
	if err != nil {
		return err
	}
	if err := b.warmUpPods(ctx, warm, protobufPlain); err != nil {
		return err
	}
	requests := slices.Concat(
		fromAnywhere("lists at resourceVersion=0", podsWith+ask.AnyVersion, clientGo),
		modify(fromAnywhere("the same within 10 s, each with a new token", podsWith+ask.AnyVersion, clientGo),
			func(q *request) { q.spread = rolloutTime }),
		modify(fromAnywhere("streaming lists, newest", podsWith+ask.StreamingList, protobufPlain), func(q *request) { q.stream = true }),
		fromAnywhere("lists, newest", podsPath, clientGo),
	)
	t := &table{caption: fmt.Sprintf("%d clients ask for all %d pods at once, while pods and other resources are written %d times a second. "+
		"Who is refused comes again after a second, which counts in the time. The cold listproxy was started for the row, and has nothing "+
		"in memory; streaming lists are what informers begin with.", b.settings.crowd, b.settings.pods, writesPerSecond)}
	stop, err := b.startWrites(ctx, busy)
	if err != nil {
		return err
	}
	for _, q := range requests {
		rows, err := b.measureCrowd(ctx, q, warm)
		if err != nil {
			return errors.Join(err, stop())
		}
		t.add(rows...)
		b.log("%s: %d clients", q.name, b.settings.crowd)
	}
	b.report(t)
	return stop()
}

// measureCrowd returns the rows of a request: at kube-apiserver, the warm listproxy, and a cold one, which is started for each
// round.
func (b *bench) measureCrowd(ctx context.Context, q request, warm side) ([]*row, error) {
	const coldName = "listproxy, cold"
	atDirect := &row{request: q.name, side: direct.name}
	atWarm := &row{request: q.name, side: warm.name}
	atCold := &row{request: q.name, side: coldName}
	for range b.settings.rounds {
		cold, err := b.startSide(ctx, coldName, "--watches", "--consistent-lists=true")
		if err != nil {
			return nil, err
		}
		for _, turn := range []struct {
			target side
			r      *row
		}{{direct, atDirect}, {warm, atWarm}, {cold, atCold}} {
			if err := b.sendCrowd(ctx, turn.target, q, turn.r); err != nil {
				return nil, err
			}
		}
		if err := b.stopLast(); err != nil { // the cold listproxy
			return nil, err
		}
	}
	return []*row{atDirect, atWarm, atCold}, nil
}

// sendCrowd has each client of the crowd send a request once, and adds the cost to a row. If the request is spread over a
// time, as the starts of a DaemonSet's pods are, each client gets a new token.
func (b *bench) sendCrowd(ctx context.Context, target side, q request, r *row) error {
	if q.spread > 0 {
		var err error
		if q.tokens, err = b.newTokens(ctx); err != nil {
			return err
		}
	}
	before, err := b.countWholeLists(ctx)
	if err != nil {
		return err
	}
	if err := b.measureSend(ctx, target, noIdle, q, volume{clients: b.settings.crowd, perClient: 1}, r); err != nil {
		return err
	}
	after, err := b.countWholeLists(ctx)
	r.wholeLists += after - before
	return err
}

const (
	// agentName is the name of the service account of clients with new tokens.
	agentName = "agent"
	// rolloutTime is the time over which the pods of a DaemonSet start.
	rolloutTime = 10 * time.Second
	// tokensAtATime is how many requests for tokens are sent at the same time.
	tokensAtATime = 8
)

// newTokens creates a token for each client of the crowd, all of one service account, like the tokens of a DaemonSet's pods.
func (b *bench) newTokens(ctx context.Context) ([]string, error) {
	tokens := make([]string, b.settings.crowd)
	creating, ctx := errgroup.WithContext(ctx)
	creating.SetLimit(tokensAtATime)
	for i := range tokens {
		creating.Go(func() (err error) {
			tokens[i], err = b.cp.CreateServiceAccountToken(ctx, controlplane.TeamB, agentName)
			return err
		})
	}
	return tokens, creating.Wait()
}

// countWholeLists reads from kube-apiserver's metrics how many lists of all pods it has answered so far. A page counts as a
// list. Streaming lists have a metric of their own, since kube-apiserver counts them as watches in the other.
func (b *bench) countWholeLists(ctx context.Context) (n int, err error) {
	client, err := rest.HTTPClientFor(b.cp.RESTConfig(controlplane.Admin))
	if err != nil {
		return 0, err
	}
	for name, labels := range map[string]map[string]string{
		"apiserver_request_total":               {"resource": "pods", "scope": "cluster", "verb": "LIST"},
		"apiserver_watch_list_duration_seconds": {"resource": "pods", "scope": "cluster"},
	} {
		lists, _, err := soak.Sum(ctx, client, b.cp.URL()+"/metrics", name, labels)
		if err != nil {
			return 0, err
		}
		n += int(lists)
	}
	return n, nil
}
