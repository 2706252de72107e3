package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/listproxy/listproxy/test/expect"
)

// TestLoginIsNeeded: a kubeconfig with which the API server would take listproxy for nobody is
// refused, and the user is named who lacks something.
func TestLoginIsNeeded(t *testing.T) {
	dir := t.TempDir()
	with := func(context api.Context, current string, login *api.AuthInfo) string {
		config := api.NewConfig()
		config.CurrentContext = current
		config.Contexts["mine"] = &context
		config.Clusters["here"] = &api.Cluster{Server: "https://127.0.0.1:6443"}
		if login != nil {
			config.AuthInfos["feeder"] = login
		}
		file := filepath.Join(dir, "kubeconfig")
		expect.NoError(t, clientcmd.WriteToFile(*config, file))
		return file
	}
	mine := api.Context{Cluster: "here", AuthInfo: "feeder"}
	for name, test := range map[string]struct {
		context api.Context
		current string
		login   *api.AuthInfo
		want    string
	}{
		"nothing":           {mine, "mine", &api.AuthInfo{}, `the user "feeder" of the context "mine" has no credentials`},
		"half":              {mine, "mine", &api.AuthInfo{ClientCertificateData: []byte("x")}, `the user "feeder" of the context "mine" has no credentials`},
		"gone":              {mine, "mine", nil, `the user "feeder" of the context "mine" is not in the file`},
		"nobody":            {api.Context{Cluster: "here"}, "mine", nil, `the context "mine" names no user`},
		"no context":        {mine, "", &api.AuthInfo{Token: "t"}, `the current context "" is not in the file`},
		"token":             {mine, "mine", &api.AuthInfo{Token: "t"}, ""},
		"file":              {mine, "mine", &api.AuthInfo{TokenFile: "/t"}, ""},
		"certificate":       {mine, "mine", &api.AuthInfo{ClientCertificateData: []byte("x"), ClientKey: "/k"}, ""},
		"plugin":            {mine, "mine", &api.AuthInfo{Exec: &api.ExecConfig{Command: "login", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: api.NeverExecInteractiveMode}}, ""},
		"user and password": {mine, "mine", &api.AuthInfo{Username: "u", Password: "p"}, ""},
	} {
		file := with(test.context, test.current, test.login)
		err := checkLogin(file)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "--kubeconfig "+file)):
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
	}
	expect.NoError(t, os.WriteFile(filepath.Join(dir, "other"), []byte("x: ["), 0o600))
	for _, file := range []string{"other", "none"} {
		if err := checkLogin(filepath.Join(dir, file)); err == nil || !strings.Contains(err.Error(), "--kubeconfig "+dir) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestPluginsAskNobody: a login plugin of listproxy's own account gets no terminal to ask at.
func TestPluginsAskNobody(t *testing.T) {
	cfg := identified(&rest.Config{ExecProvider: &api.ExecConfig{InteractiveMode: api.IfAvailableExecInteractiveMode}})
	if !cfg.ExecProvider.StdinUnavailable {
		t.Error("a plugin may read from standard input")
	}
}
