package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/listproxy/listproxy/test/expect"
)

// helperEnv makes the test binary a process that starts a control plane and waits; see
// TestKilledProcessLeavesNothing.
const helperEnv = "CONTROLPLANE_TEST_HELPER"

// patience ends a wait for something that must come; no test passes because of it.
const patience = time.Minute

// shared is the control plane that serves all tests that do not need one of their own.
var shared *ControlPlane

func TestMain(m *testing.M) {
	if os.Getenv(helperEnv) != "" {
		os.Exit(helper())
	}
	os.Exit(func() int {
		cp, err := Start(context.Background(), Options{Log: logLine})
		if err != nil {
			logLine(err.Error())
			return 1
		}
		defer cp.Stop()
		shared = cp
		return m.Run()
	}())
}

// long leaves a test to make test-all: go test -short skips it. (harness.Long does the same for
// whoever may import harness, which starts control planes itself.)
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("make test-all runs it")
	}
}

func logLine(line string) { _, _ = fmt.Fprintln(os.Stderr, line) }

// get sends a GET as the user and returns the status and the body.
func get(t *testing.T, cp *ControlPlane, user, path string) (int, []byte) {
	t.Helper()
	return call(t, cp, user, http.MethodGet, path, nil)
}

// call sends a request as the user and returns the status (200 for every 2xx) and the body.
func call(t *testing.T, cp *ControlPlane, user, method, path string, body any) (int, []byte) {
	t.Helper()
	answer, err := cp.request(t.Context(), user, method, path, body)
	var status *statusError
	switch {
	case err == nil:
		return http.StatusOK, answer
	case errors.As(err, &status):
		return status.code, status.body
	}
	t.Fatalf("%s %s as %s: %v", method, path, user, err)
	return 0, nil
}

// createConfigMap creates a config map in team-a and returns its revision.
func createConfigMap(t *testing.T, cp *ControlPlane, name string) string {
	t.Helper()
	code, body := call(t, cp, Admin, http.MethodPost, "/api/v1/namespaces/team-a/configmaps", map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name},
	})
	if code != http.StatusOK {
		t.Fatalf("create config map %s: %d %s", name, code, body)
	}
	var object struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	expect.NoError(t, json.Unmarshal(body, &object))
	return object.Metadata.ResourceVersion
}

// helper starts a control plane, says where it is, and waits for the end of its input.
func helper() int {
	cp, err := Start(context.Background(), Options{})
	if err != nil {
		logLine(err.Error())
		return 1
	}
	report := helperReport{Dir: cp.Dir(), URL: cp.URL(), PIDs: []int{
		cp.etcd.cmd.Process.Pid, cp.apiserver.cmd.Process.Pid, cp.reaper.cmd.Process.Pid,
	}}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

type helperReport struct {
	Dir  string
	URL  string
	PIDs []int
}
