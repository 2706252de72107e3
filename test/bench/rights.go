package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
	"github.com/listproxy/listproxy/test/harness/soak"
)

const (
	// callers is how many list beside RBAC writes, each once in callersEvery.
	callers      = 50
	callersEvery = 100 * time.Millisecond
	// agentsEvery is how often an agent lists, and agentsAsk how often in all.
	agentsEvery = 15 * time.Second
	agentsAsk   = 3
)

// rights measures what it costs to know who may list: of many callers beside strangers' RoleBindings, and of
// agents who come seldom.
func rights(ctx context.Context, b *bench) error {
	listsPods := []rbacv1.PolicyRule{controlplane.Rule("list", "", "pods")}
	if err := b.cp.GrantAll(ctx, controlplane.Grant{To: []string{controlplane.TeamB + "/" + agentName}, Rules: listsPods}); err != nil {
		return err
	}
	if err := b.fill(ctx); err != nil {
		return err
	}
	sides := []side{{name: straight}}
	for _, mode := range []string{"true", "false", "always"} {
		at, err := b.through(ctx, "`--consistent-lists="+mode+"`", "--eager", "pods", "--consistent-lists="+mode)
		if err != nil {
			return err
		}
		if _, err := b.learn(ctx, at, in("", podsPath+ask.AnyVersion, true, plain)[0]); err != nil {
			return err
		}
		sides = append(sides, at)
	}
	tokens, err := b.newTokens(ctx)
	if err != nil {
		return err
	}
	if err := b.besideWrites(ctx, sides[:2], tokens[:callers]); err != nil {
		return err
	}
	return b.seldom(ctx, sides, tokens)
}

// besideWrites has callers list while strangers' bindings are made and deleted, and then takes a right away.
func (b *bench) besideWrites(ctx context.Context, sides []side, tokens []string) error {
	t := &table{caption: fmt.Sprintf("%d callers list one node's pods in a namespace at `resourceVersion=0` every %v, for %d s, while RoleBindings in another "+
		"namespace are made and deleted.", callers, callersEvery, b.settings.seconds)}
	path := "/api/v1/namespaces/" + controlplane.TeamB + "/pods?" + strings.TrimPrefix(b.byNode(), podsPath) + "&" + ask.AnyVersion
	times := int(time.Duration(b.settings.seconds) * time.Second / callersEvery)
	measure := func(at side, perSecond int) (*result, error) {
		r := &result{asked: fmt.Sprintf("%d writes a second", perSecond), of: at.name}
		writing, stop := context.WithCancel(ctx)
		defer stop()
		var writes errgroup.Group
		if perSecond > 0 {
			writes.Go(func() error { return b.writeBindings(writing, perSecond) })
		}
		err := b.paced(ctx, at, r, tokens, callersEvery, times, func(int) string { return path })
		if err == nil && at.proxy != nil {
			err = b.revoke(ctx, at, path)
		}
		stop()
		return r, errors.Join(err, writes.Wait())
	}
	first, err := measure(sides[0], 0)
	if err != nil {
		return err
	}
	rows := []*result{first}
	for _, perSecond := range []int{0, 1, 5, 50} {
		r, err := measure(sides[1], perSecond)
		if err != nil {
			return err
		}
		rows = append(rows, r)
	}
	t.add(rows...)
	b.report(t)
	return nil
}

// writeBindings makes and deletes bindings, so many writes a second, until ctx ends.
func (b *bench) writeBindings(ctx context.Context, perSecond int) error {
	var revoke func(context.Context) error
	for range poll.Ticks(ctx, time.Second/time.Duration(perSecond)) {
		var err error
		if revoke == nil {
			revoke, err = b.cp.Grant(ctx, controlplane.Grant{To: []string{"stranger"}, Namespace: controlplane.TeamA, Role: "view"})
		} else {
			err, revoke = revoke(ctx), nil
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// revoke takes carol's right to a list away that she has from memory, and logs for how long it counted.
func (b *bench) revoke(ctx context.Context, at side, path string) error {
	end, err := b.cp.Grant(ctx, controlplane.Grant{
		To: []string{controlplane.Carol}, Namespace: controlplane.TeamB, Rules: []rbacv1.PolicyRule{controlplane.Rule("list", "", "pods")},
	})
	if err != nil {
		return err
	}
	cfg := b.config(at, controlplane.Carol)
	over, err := b.connection(cfg, false, 0)
	if err != nil {
		return err
	}
	until := func(done func(hit, refused bool) bool) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		for range poll.Ticks(ctx, callersEvery/10) {
			a, _, err := request{path: path, accept: ask.JSON}.once(ctx, over, cfg)
			if done(a.hit, err != nil) {
				return nil
			}
		}
		return fmt.Errorf("%s: not within %v: %w", path, patience, ctx.Err())
	}
	if err := until(func(hit, refused bool) bool { return hit && !refused }); err != nil {
		return err
	}
	begun := time.Now()
	if err := errors.Join(end(ctx), until(func(_, refused bool) bool { return refused })); err != nil {
		return err
	}
	b.log("a right that was taken away counted for %v", time.Since(begun).Round(time.Millisecond))
	return nil
}

// seldom has agents list their node's pods: all at once with tokens that are new, as after a restart of listproxy, and then
// at the newest state at their own pace.
func (b *bench) seldom(ctx context.Context, sides []side, tokens []string) error {
	t := &table{caption: fmt.Sprintf("%d agents, each with a token of its own, list their node's pods: at `resourceVersion=0` all at once with new tokens; "+
		"and at the newest state every %v, %d times.", len(tokens), agentsEvery, agentsAsk)}
	path := func(i int) string {
		return podsPath + "fieldSelector=spec.nodeName%3D" + b.nodes().Node(i%(b.settings.pods/podsPer))
	}
	anyVersion := func(i int) string { return path(i) + "&" + ask.AnyVersion }
	var first, newest []*result
	for _, at := range sides {
		atOnce, paced := &result{asked: "new tokens at once", of: at.name}, &result{asked: "newest", of: at.name}
		if err := b.paced(ctx, at, atOnce, tokens, 0, 1, anyVersion); err != nil {
			return err
		}
		if err := b.paced(ctx, at, paced, tokens, agentsEvery, agentsAsk, path); err != nil {
			return err
		}
		first, newest = append(first, atOnce), append(newest, paced)
	}
	t.add(first...)
	t.add(newest...)
	b.report(t)
	return nil
}

// paced has clients, each with a token of its own, list so many times at a pace, and counts the reviews meanwhile.
func (b *bench) paced(ctx context.Context, at side, r *result, tokens []string, every time.Duration, times int, path func(int) string) error {
	idle, err := b.idle(ctx, at)
	if err != nil {
		return err
	}
	before, err := b.reviews(ctx)
	if err != nil {
		return err
	}
	answers := make([][]answer, len(tokens))
	var all errgroup.Group
	begun := time.Now()
	for i, token := range tokens {
		cfg := rest.CopyConfig(b.config(at, ""))
		over, err := b.connection(cfg, false, i/10) // shared, as behind a balancer
		if err != nil {
			return err
		}
		cfg.BearerToken = token
		all.Go(func() error {
			for n := range times {
				due := begun.Add(every*time.Duration(n) + every*time.Duration(i)/time.Duration(len(tokens)))
				if !clock.Sleep(ctx, time.Until(due)) {
					return ctx.Err()
				}
				a, err := request{path: path(i), accept: ask.JSON}.untilAnswered(ctx, over, cfg)
				if err != nil {
					return err
				}
				answers[i] = append(answers[i], a)
			}
			return nil
		})
	}
	err = b.cost(at, idle, r, all.Wait)
	for _, of := range answers {
		for _, a := range of {
			r.take(a)
		}
	}
	after, counted := b.reviews(ctx)
	r.reviews = after - before
	b.log("%s, %s: %d lists, %d reviews, kube-apiserver %v, listproxy %v", r.asked, at.name, r.answers, r.reviews, r.kube.Round(time.Millisecond), r.proxy.Round(time.Millisecond))
	return errors.Join(err, counted)
}

// reviews is how many reviews kube-apiserver has answered so far.
func (b *bench) reviews(ctx context.Context) (int, error) {
	client, err := rest.HTTPClientFor(b.cp.RESTConfig(controlplane.Admin))
	if err != nil {
		return 0, err
	}
	n, _, err := soak.Sum(ctx, client, b.cp.URL()+"/metrics", "apiserver_request_total", map[string]string{"resource": "selfsubjectaccessreviews"})
	return int(n), err
}
