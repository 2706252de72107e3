package main

import (
	"strings"
	"testing"

	"github.com/listproxy/listproxy/cmd/listproxy/cli/clitest"
	"github.com/listproxy/listproxy/telemetry"
)

// TestMistakesAreMet: what people write by mistake is refused, with what they probably meant.
func TestMistakesAreMet(t *testing.T) {
	wrong := clitest.PolicyFile(t, "resources:\n- {group: '', resource: pod, version: v1, cache: eager}\n- {group: apps, resource: deploymnet, cache: never}\n")
	for _, tt := range []struct {
		args []string
		says []string
	}{
		{[]string{"--eager", "pod"}, []string{"--eager", `no "pod"`, `did you mean "pods"?`}},
		{[]string{"--eager", "deployment.v1.apps"}, []string{"--eager", `did you mean "deployments"?`}},
		{[]string{"--config", wrong}, []string{"--config", wrong + ":4: resource", `did you mean "pods"?`, wrong + ":5: resource", `did you mean "deployments"?`}},
		{[]string{"--cache-bytes", "512"}, []string{`--cache-bytes "512" is 512 bytes`, "did you mean 512Mi?"}},
		{[]string{"--cache-bytes", "32Ki"}, []string{`--cache-bytes "32Ki" is 32768 bytes`, "at least 64Ki"}},
		{[]string{"--max-inflight-bytes", "128"}, []string{"--max-inflight-bytes", "did you mean 128Mi?"}},
		{[]string{"--bind-address", "127.0.0.1:9443"}, []string{`--bind-address "127.0.0.1:9443" has a port`, "--bind-address 127.0.0.1 --secure-port 9443"}},
		{[]string{"--bind-address", "localhost"}, []string{"not an IP address", "--secure-port"}},
	} {
		_, err := parse(tt.args...)
		clitest.Refused(t, err, tt.says...)
	}
	for args, words := range map[string]string{
		"--kubeconfg x":                  "unknown flag: --kubeconfg: did you mean --kubeconfig?",
		"--eagre pods":                   "did you mean --eager?",
		"--eagr pods":                    "did you mean --eager?",
		"--nothing-like-it x":            "--help lists them",
		"status --addrss x":              "did you mean --address?",
		"policy explain":                 "listproxy policy explain METHOD URL",
		"policy explain GET":             "takes 2 arguments, not 1",
		"stauts":                         "did you mean status?",
		"serve":                          `there is no command "serve": --help lists them`,
		"analyze":                        "listproxy analyze FILE...",
		"analyze /nope":                  "/nope: no such file",
		"policy check":                   "listproxy policy check FILE",
		"policy check " + wrong:          `did you mean "pods"?`,
		"policy explain --heder x GET /": "did you mean --header?",
	} {
		code, out, err := execute(t, strings.Fields(args)...)
		if err == nil || code == 0 || out != "" || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %d, %q, %v, want %q", args, code, out, err, words)
		}
	}
	t.Setenv("KUBECONFIG", "/nope")
	for _, command := range []string{"try", "kubeconfig", "policy explain GET /api/v1/pods --address https://127.0.0.1:1"} {
		if _, _, err := execute(t, strings.Fields(command)...); err == nil || !strings.Contains(err.Error(), `KUBECONFIG is "/nope"`) {
			t.Errorf("%s: %v", command, err)
		}
	}
	if got := telemetry.UserAgent(userAgent("listproxy-try")); got == telemetry.Masked {
		t.Error("the status page hides who listproxy try is")
	}
	_, out, err := execute(t, "policy", "explain", "GET", "/api/v1/pod?resourceVersion=0")
	if err != nil || !strings.Contains(out, "unknown-resource") || !strings.Contains(out, `did you mean "pods"?`) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestNamesThatAreRight: what Kubernetes has, and what it may have, is accepted.
func TestNamesThatAreRight(t *testing.T) {
	for _, name := range []string{
		"pods", "endpoints", "nodes", "networkpolicies.v1.networking.k8s.io", "ingresses.v1.networking.k8s.io", "csinodes.v1.storage.k8s.io",
		"widget.v1.example.com", "gateways.v1.networking.k8s.io", "customresourcedefinitions.v1.apiextensions.k8s.io",
		"resourceslices.v9.batch", "storageclasses.v1.storage.k8s.io", "priorityclasses.v1.scheduling.k8s.io",
	} {
		if _, err := parse("--eager", name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
