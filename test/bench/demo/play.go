package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/listproxy/listproxy/test/controlplane"
)

// invite writes what is needed to try it by hand, with listproxy's own command, and says how.
func (s *scene) invite(ctx context.Context) error {
	kubeconfig := filepath.Join(s.cp.Dir(), "demo.kubeconfig")
	command := exec.CommandContext(ctx, s.binary, "kubeconfig", // #nosec G204 -- our own program
		"--kubeconfig", s.cp.KubeconfigPath(controlplane.Admin),
		"--server", s.proxy.URL(), "--certificate-authority", s.caFile)
	text, err := command.Output()
	if err != nil {
		return fmt.Errorf("listproxy kubeconfig: %w", err)
	}
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		return fmt.Errorf("keep the kubeconfig: %w", err)
	}
	// The token stays out of the command line.
	curl := filepath.Join(s.cp.Dir(), "curl.conf")
	settings := fmt.Sprintf("cacert = %q\nheader = \"Authorization: Bearer %s\"\nsilent\n", s.caFile, s.cp.Token(controlplane.Admin))
	if err := os.WriteFile(curl, []byte(settings), 0o600); err != nil {
		return fmt.Errorf("keep settings for curl: %w", err)
	}
	say(s.out, instructions, kubeconfig, s.cp.Binaries().Kubectl,
		curl, s.proxy.URL(), s.proxy.AdminURL(), s.cp.URL(), s.cp.KubeconfigPath(controlplane.Alice))
	return nil
}

const instructions = `
It goes on running. In another terminal, for a client of listproxy:

  export KUBECONFIG=%[1]s

A list that kubectl sends as it is, from memory; and what says so:

  %[2]s get --raw '/api/v1/namespaces/team-a/pods?resourceVersion=0' | head -c 300
  %[2]s get --raw '/api/v1/namespaces/team-a/pods?resourceVersion=0' -v=8 2>&1 | grep -i cache-status

curl shows where an answer came from. (As itself it gets indented JSON; another User-Agent gets
what programs get. The newest state is forwarded.)

  curl -K %[3]s -o /dev/null -D - '%[4]s/api/v1/pods?resourceVersion=0'
  curl -K %[3]s -A me -o /dev/null -D - '%[4]s/api/v1/pods?resourceVersion=0'
  curl -K %[3]s -o /dev/null -D - '%[4]s/api/v1/pods'

kubectl's own commands work as ever; they ask for tables of the newest state, which are forwarded:

  %[2]s get pods -A | head

listproxy      %[4]s (health: %[5]s/readyz?verbose)
kube-apiserver %[6]s
alice          %[7]s (at kube-apiserver)

Ctrl-C stops everything and removes what was made.
`
