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
	"strconv"
	"strings"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
)

const (
	// informersAtOnce is how many programs begin at the same time in the demo, as after a rollout.
	informersAtOnce = 10
	demoRequests    = 3
)

// demo shows what comes from memory, holds each answer against kube-apiserver's, and then stays up to
// be tried by hand. It fails if an answer differs, or did not come from memory where it can.
func demo(ctx context.Context, b *bench) error {
	b.settings.requests, b.settings.rounds = min(b.settings.requests, demoRequests), 1
	if err := b.fill(ctx); err != nil {
		return err
	}
	proxied, err := b.through(ctx, "listproxy", "--eager", "pods", "--watches", "--consistent-lists=always")
	if err != nil {
		return err
	}
	page := strconv.Itoa(b.settings.page)
	all := in("all pods", podsPath+ask.AnyVersion, true, plain, zipped, protobuf, metadata)
	all = append(all, in("a page of "+page, podsPath+"limit="+page+"&resourceVersion=NEWEST&resourceVersionMatch=Exact", true, plain)...)
	all = append(all, in("1% by label", byLabel+"&"+ask.AnyVersion, true, plain)...)
	all = append(all, in("one node's", b.byNode()+"&"+ask.AnyVersion, true, plain)...)
	alices := in("alice, her namespace", "/api/v1/namespaces/"+controlplane.TeamA+"/pods?"+ask.AnyVersion, true, plain)
	alices[0].user = controlplane.Alice
	all = append(all, alices...)
	for _, q := range all {
		if err := b.same(ctx, proxied, q); err != nil {
			return err
		}
	}
	if _, err := b.compare(ctx, fmt.Sprintf("%d pods; the answers are the same, byte for byte", b.settings.pods), []side{{name: straight}, proxied}, all); err != nil {
		return err
	}
	stop, err := b.disturb(ctx, true)
	if err != nil {
		return err
	}
	informers := in(fmt.Sprintf("%d informers start at once", informersAtOnce), podsPath+ask.StreamingList, true, protobuf)[0]
	informers.stream, informers.clients = true, informersAtOnce
	newest := in("all pods, newest state", "/api/v1/pods", true, zipped)
	t, err := b.compare(ctx, "with `--watches` and `--consistent-lists=always`, while pods change", []side{{name: straight}, proxied}, append(newest, informers))
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	for _, r := range t.rows {
		if r.of != straight && r.hits < r.answers {
			return fmt.Errorf("%s: %d of %d answers came from memory", r.asked, r.hits, r.answers)
		}
	}
	_, _ = fmt.Fprintln(b.out, "All is as promised.")
	if b.settings.once {
		return nil
	}
	if err := b.invite(ctx, proxied); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// same holds listproxy's answer against kube-apiserver's at the same revision: the newest that there
// is, of which listproxy may hear a moment later.
func (b *bench) same(ctx context.Context, at side, q request) error {
	q.path = strings.Replace(q.path, ask.AnyVersion, "resourceVersion="+newestRevision+"&resourceVersionMatch=Exact", 1)
	now, err := b.current(ctx, q)
	if err != nil {
		return err
	}
	return poll.Try(ctx, patience, lookEvery, q.name, func() error {
		var both [2]ask.Answer
		for i, of := range []side{at, {name: straight}} {
			c, err := ask.New(b.config(of, q.user), patience)
			if err != nil {
				return err
			}
			if both[i], err = c.GetAs(ctx, q.accept, now.path); err != nil {
				return err
			}
		}
		return differ(both[0], both[1])
	})
}

// differ says why an answer of listproxy is not as promised: kube-apiserver's, and from memory.
func differ(ours, theirs ask.Answer) error {
	switch {
	case ours.Code != http.StatusOK || theirs.Code != http.StatusOK:
		return fmt.Errorf("listproxy answers %d, kube-apiserver %d", ours.Code, theirs.Code)
	case !ours.FromMemory():
		return fmt.Errorf("not from memory but %s", ours.Source())
	case !bytes.Equal(ours.Body, theirs.Body):
		return fmt.Errorf("listproxy's answer of %d bytes is not kube-apiserver's of %d", len(ours.Body), len(theirs.Body))
	}
	return nil
}

// invite writes what is needed to try it by hand, with listproxy's own command, and says how.
func (b *bench) invite(ctx context.Context, at side) error {
	ca := filepath.Join(b.cp.Dir(), "listproxy-ca.crt")
	if err := os.WriteFile(ca, at.proxy.CA(), 0o600); err != nil {
		return fmt.Errorf("keep listproxy's CA: %w", err)
	}
	command := exec.CommandContext(ctx, b.binary, "kubeconfig", // #nosec G204 -- our own program
		"--kubeconfig", b.cp.KubeconfigPath(controlplane.Admin), "--server", at.proxy.URL(), "--certificate-authority", ca)
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
	_, _ = fmt.Fprintf(b.out, instructions, kubeconfig, b.cp.Binaries().Kubectl,
		curl, at.proxy.URL(), at.proxy.AdminURL(), b.cp.URL(), b.cp.KubeconfigPath(controlplane.Alice))
	return nil
}

const instructions = `
It goes on running. In another terminal, for a client of listproxy:

  export KUBECONFIG=%[1]s

A list that kubectl sends as it is, from memory; and what says so:

  %[2]s get --raw '/api/v1/namespaces/team-a/pods?resourceVersion=0' | head -c 300
  %[2]s get --raw '/api/v1/namespaces/team-a/pods?resourceVersion=0' -v=8 2>&1 | grep -i cache-status

curl shows where an answer came from:

  curl -K %[3]s -o /dev/null -D - '%[4]s/api/v1/pods?resourceVersion=0'

kubectl's own commands work as ever; they ask for tables, which are forwarded:

  %[2]s get pods -A | head

listproxy      %[4]s (health: %[5]s/readyz?verbose)
kube-apiserver %[6]s
alice          %[7]s (at kube-apiserver)

Ctrl-C stops everything and removes what was made.
`
