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

// crowd has many clients ask for the same at the same moment: at a listproxy that has the resource in
// memory, and at one that nobody has asked for it yet.
func crowd(ctx context.Context, b *bench) error {
	// The API server knows of it by the time that there are pods.
	may := controlplane.Grant{To: []string{controlplane.TeamB + "/" + agentName}, Rules: []rbacv1.PolicyRule{controlplane.Rule("list", "", "pods")}}
	if err := b.cp.GrantAll(ctx, may); err != nil {
		return err
	}
	if err := b.fill(ctx); err != nil {
		return err
	}
	both := []string{"--watches", "--consistent-lists=true"}
	warm, err := b.through(ctx, "listproxy", append(both, "--eager", "pods")...)
	if err != nil {
		return err
	}
	if _, err := b.learn(ctx, warm, in("", podsPath+ask.AnyVersion, true, protobuf)[0]); err != nil {
		return err
	}
	informers := in("streaming lists, newest", podsPath+ask.StreamingList, false, protobuf)
	informers[0].stream = true
	anyState := in("lists at resourceVersion=0", podsPath+ask.AnyVersion, false, goClients)
	t := &table{caption: fmt.Sprintf("%d clients ask for all %d pods at once, while pods and other resources are written %d times a second. "+
		"Who is refused comes again after a second, which counts in the time. The cold listproxy was started for the row, and has nothing "+
		"in memory; streaming lists are what informers begin with.", b.settings.crowd, b.settings.pods, otherWrites)}
	stop, err := b.disturb(ctx, true)
	if err != nil {
		return err
	}
	agents := in(ofAgents, podsPath+ask.AnyVersion, false, goClients)
	agents[0].within = rollout
	for _, q := range slices.Concat(anyState, agents, informers, in("lists, newest", "/api/v1/pods", false, goClients)) {
		rows := []*result{{asked: q.name, of: straight}, {asked: q.name, of: warm.name}, {asked: q.name, of: "listproxy, cold"}}
		for range b.settings.rounds {
			cold, err := b.through(ctx, "listproxy, cold", both...)
			if err != nil {
				return errors.Join(err, stop())
			}
			for i, at := range []side{{name: straight}, warm, cold} {
				if err := b.atOnce(ctx, at, q, rows[i]); err != nil {
					return errors.Join(err, stop())
				}
			}
			if err := b.stop(); err != nil {
				return errors.Join(err, stop())
			}
		}
		t.add(rows...)
		b.log("%s: %d clients", q.name, b.settings.crowd)
	}
	b.report(t)
	return stop()
}

// atOnce has the crowd ask a side once.
func (b *bench) atOnce(ctx context.Context, at side, q request, r *result) error {
	if q.within > 0 {
		var err error
		if q.tokens, err = b.newTokens(ctx); err != nil {
			return err
		}
	}
	before, err := b.wholeLists(ctx)
	if err != nil {
		return err
	}
	if err := b.cost(at, nil, r, func() error { return b.ask(ctx, at, q, b.settings.crowd, 1, r) }); err != nil {
		return err
	}
	after, err := b.wholeLists(ctx)
	r.lists += after - before
	return err
}

const (
	agentName = "agent"
	ofAgents  = "the same within 10 s, each with a new token"
	rollout   = 10 * time.Second
)

// newTokens returns a token for each of the crowd that nobody has seen, all of one service account, as
// the pods of a DaemonSet have them.
func (b *bench) newTokens(ctx context.Context) ([]string, error) {
	tokens := make([]string, b.settings.crowd)
	making, ctx := errgroup.WithContext(ctx)
	making.SetLimit(8)
	for i := range tokens {
		making.Go(func() (err error) {
			tokens[i], err = b.cp.CreateServiceAccountToken(ctx, controlplane.TeamB, agentName)
			return err
		})
	}
	return tokens, making.Wait()
}

// wholeLists is how many lists of all pods kube-apiserver has answered so far, streaming lists and
// pages too, as it counts them itself.
func (b *bench) wholeLists(ctx context.Context) (n int, err error) {
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
