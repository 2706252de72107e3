package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// demoInformers is the number of informers that start at the same time, as after a rollout.
	demoInformers = 10
	// demoRequests is how often each request is sent.
	demoRequests = 3
)

// runDemo measures what comes from memory, compares each answer with kube-apiserver's, and then stays up to be tried by hand.
// It fails if an answer differs or is not from memory.
func runDemo(ctx context.Context, b *bench) error {
	b.settings.requests, b.settings.rounds = min(b.settings.requests, demoRequests), 1
	proxied, err := b.startSide(ctx, "listproxy", "--eager", "pods", "--watches", "--consistent-lists=always")
	if err != nil {
		return err
	}
	page := strconv.Itoa(b.settings.page())
	firstPage := podsWith + "limit=" + page + "&resourceVersion=" + newestRevision + "&resourceVersionMatch=Exact"
	alicesPods := "/api/v1/namespaces/" + controlplane.TeamA + "/pods?" + ask.AnyVersion
	all := slices.Concat(
		fromMemory("all pods", podsWith+ask.AnyVersion, jsonPlain, jsonGzip, protobufPlain, metadataJSON),
		fromMemory("a page of "+page, firstPage, jsonPlain),
		fromMemory("1% by label", byLabel+"&"+ask.AnyVersion, jsonPlain),
		fromMemory("one node's", b.byNode()+"&"+ask.AnyVersion, jsonPlain),
		modify(fromMemory("alice, her namespace", alicesPods, jsonPlain), func(q *request) { q.user = controlplane.Alice }),
	)
	for _, q := range all {
		if err := b.requireSame(ctx, proxied, q); err != nil {
			return err
		}
	}
	sides := []side{direct, proxied}
	caption := fmt.Sprintf("%d pods; the answers are the same, byte for byte", b.settings.pods)
	if _, err := b.compare(ctx, caption, sides, all); err != nil {
		return err
	}
	if err := b.demoWhileChanging(ctx, sides); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(b.out, "All is as promised.")
	if b.settings.once {
		return nil
	}
	if err := b.printInstructions(ctx, proxied); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// demoWhileChanging measures consistent lists and informers that start while pods change.
func (b *bench) demoWhileChanging(ctx context.Context, sides []side) error {
	stop, err := b.startWrites(ctx, busy)
	if err != nil {
		return err
	}
	requests := slices.Concat(
		fromMemory("all pods, newest state", podsPath, jsonGzip),
		modify(fromMemory(fmt.Sprintf("%d informers start at once", demoInformers), podsWith+ask.StreamingList, protobufPlain),
			func(q *request) { q.stream, q.clients = true, demoInformers }),
	)
	t, err := b.compare(ctx, "with `--watches` and `--consistent-lists=always`, while pods change", sides, requests)
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	for _, r := range t.rows {
		if r.side != direct.name && r.hits < r.answers {
			return fmt.Errorf("%s: only %d of %d answers came from memory", r.request, r.hits, r.answers)
		}
	}
	return nil
}

// requireSame compares listproxy's answer with kube-apiserver's. If the request accepts any version (resourceVersion=0),
// requireSame asks for exactly the newest revision instead, so that both must give the same state. listproxy may not have that
// revision yet. Then requireSame tries again, at the revision that is the newest by then.
func (b *bench) requireSame(ctx context.Context, proxied side, q request) error {
	q.path = strings.Replace(q.path, ask.AnyVersion, "resourceVersion="+newestRevision+"&resourceVersionMatch=Exact", 1)
	return poll.Try(ctx, patience, pollInterval, q.name, func() error {
		resolved, err := b.resolve(ctx, q)
		if err != nil {
			return err
		}
		got, err := b.get(ctx, proxied, resolved)
		if err != nil {
			return err
		}
		want, err := b.get(ctx, direct, resolved)
		if err != nil {
			return err
		}
		return compareAnswers(got, want)
	})
}

// get sends a request to a side once, and returns the whole answer.
func (b *bench) get(ctx context.Context, target side, q request) (ask.Answer, error) {
	client, err := ask.New(b.config(target, q.user), patience)
	if err != nil {
		return ask.Answer{}, err
	}
	return client.GetAs(ctx, q.accept, q.path)
}

// compareAnswers returns an error unless listproxy's answer is from memory, and equal to kube-apiserver's.
func compareAnswers(got, want ask.Answer) error {
	switch {
	case got.Code != http.StatusOK || want.Code != http.StatusOK:
		return fmt.Errorf("listproxy answers %d, kube-apiserver %d", got.Code, want.Code)
	case !got.FromMemory():
		return fmt.Errorf("not from memory but %s", got.Source())
	case !bytes.Equal(got.Body, want.Body):
		return fmt.Errorf("listproxy's answer of %d bytes is not kube-apiserver's of %d", len(got.Body), len(want.Body))
	}
	return nil
}

// printInstructions writes a kubeconfig (by listproxy's own command) and settings for curl, and prints how to use them.
func (b *bench) printInstructions(ctx context.Context, proxied side) error {
	ca := filepath.Join(b.cp.Dir(), "listproxy-ca.crt")
	if err := os.WriteFile(ca, proxied.proxy.CA(), 0o600); err != nil {
		return fmt.Errorf("keep listproxy's CA: %w", err)
	}
	command := exec.CommandContext(ctx, b.binary, "kubeconfig", // #nosec G204 -- our own program
		"--kubeconfig", b.cp.KubeconfigPath(controlplane.Admin), "--server", proxied.proxy.URL(), "--certificate-authority", ca)
	text, err := command.Output()
	if err != nil {
		return fmt.Errorf("listproxy kubeconfig: %w", err)
	}
	kubeconfig := filepath.Join(b.cp.Dir(), "demo.kubeconfig")
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		return fmt.Errorf("keep the kubeconfig: %w", err)
	}
	// The token stays out of the command line.
	curl := filepath.Join(b.cp.Dir(), "curl.conf")
	settings := fmt.Sprintf("cacert = %q\nheader = \"Authorization: Bearer %s\"\nsilent\n", ca, b.cp.Token(controlplane.Admin))
	if err := os.WriteFile(curl, []byte(settings), 0o600); err != nil {
		return fmt.Errorf("keep settings for curl: %w", err)
	}
	_, _ = fmt.Fprint(b.out, strings.NewReplacer(
		"{kubeconfig}", kubeconfig, "{kubectl}", b.cp.Binaries().Kubectl, "{curl settings}", curl,
		"{listproxy}", proxied.proxy.URL(), "{admin}", proxied.proxy.AdminURL(),
		"{kube-apiserver}", b.cp.URL(), "{alice}", b.cp.KubeconfigPath(controlplane.Alice),
	).Replace(instructions))
	return nil
}

const instructions = `
It goes on running. In another terminal, for a client of listproxy:

  export KUBECONFIG={kubeconfig}

A list that is answered from memory, and the header that says so:

  {kubectl} get --raw '/api/v1/namespaces/team-a/pods?resourceVersion=0' | head -c 300
  {kubectl} get --raw '/api/v1/namespaces/team-a/pods?resourceVersion=0' -v=8 2>&1 | grep -i cache-status

curl shows where an answer came from:

  curl -K {curl settings} -o /dev/null -D - '{listproxy}/api/v1/pods?resourceVersion=0'

kubectl's own commands work as ever; they ask for tables, which are forwarded:

  {kubectl} get pods -A | head

listproxy      {listproxy} (health: {admin}/readyz?verbose)
kube-apiserver {kube-apiserver}
alice          {alice} (at kube-apiserver)

Ctrl-C stops everything and removes what was made.
`
