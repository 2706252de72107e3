package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/listproxy/listproxy/test/expect"
)

// TestWrongKubeconfigs: a kubeconfig that cannot be read, or that leads nowhere, is refused by its name.
func TestWrongKubeconfigs(t *testing.T) {
	for name, text := range map[string]string{
		"no YAML":      "x: [",
		"no context":   "current-context: mine\n",
		"no cluster":   "current-context: mine\ncontexts: [{name: mine, context: {cluster: here, user: me}}]\n",
		"nothing said": "",
	} {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		expect.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		o := upstreamOptions{kubeconfig: file}
		if _, err := o.clientConfig(); err == nil || !strings.Contains(err.Error(), "--kubeconfig "+file) {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := upstreamOptions{kubeconfig: filepath.Join(t.TempDir(), "none")}
	if _, err := o.clientConfig(); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestPluginsAskNobody: a login plugin of listproxy's own account gets no terminal to ask at.
func TestPluginsAskNobody(t *testing.T) {
	cfg := identified(&rest.Config{ExecProvider: &api.ExecConfig{InteractiveMode: api.IfAvailableExecInteractiveMode}})
	if !cfg.ExecProvider.StdinUnavailable {
		t.Error("a plugin may read from standard input")
	}
}
