package cluster_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/snapshot/clock"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// replicas returns the process IDs of listproxy's replicas.
func replicas() (pids []int) {
	processes, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, path := range processes {
		name, _ := os.ReadFile(path) // #nosec G304 -- of the kernel
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && string(name) == "listproxy\n" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// checkKilled checks that after one replica was killed, no request fails but those that kube-proxy still sends to it.
func checkKilled(t *testing.T, c *tester) {
	poll.Until(t, patience, "only the two current replicas run", func() bool { return len(replicas()) == 2 })
	restarts := func() string {
		return c.kubectl(t, "get pods -n listproxy -o jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	}
	before := restarts()
	const refused = "connect: connection refused" // kube-proxy still sends to the killed replica
	whileClientsWork(t, c.through, c.direct, func() {
		expect.NoError(t, syscall.Kill(replicas()[0], syscall.SIGKILL))
		poll.Until(t, patience, "the replica was restarted", func() bool { return restarts() != before })
		c.kubectl(t, "rollout status deployment/listproxy -n listproxy --timeout=5m")
	}, refused)
}

// checkCertificate checks what docs/operate.md says: an upgrade replaces a certificate whose Secret was deleted. Clients trust
// the new one, and no pod restarts for it.
func checkCertificate(t *testing.T, c *tester) {
	const getGeneration = "get deployment listproxy -n listproxy -o jsonpath={.metadata.generation}"
	certificate := func() string {
		return c.kubectl(t, "get secret listproxy-tls -n listproxy -o jsonpath={.data.tls\\.crt}")
	}
	c.install(t)
	whileClientsWork(t, c.through, c.direct, func() {
		before := certificate()
		generation := c.kubectl(t, getGeneration)
		c.kubectl(t, "delete secret listproxy-tls -n listproxy")
		c.install(t)
		if certificate() == before {
			t.Error("the upgrade has kept the certificate, want a new one")
		}
		expect.Same(t, generation, c.kubectl(t, getGeneration)) // the Deployment is as before, so no pod restarts
	})
}

// checkToken checks that clients go on when their token file gets a new token, as from a kubelet, and the old one becomes
// invalid.
func checkToken(t *testing.T, c *tester) {
	const (
		reloadTime = time.Minute + 15*time.Second // client-go reads a token file once a minute
		forgetTime = 40 * time.Second             // longer than kube-apiserver and listproxy remember that a token was valid
	)
	file := filepath.Join(t.TempDir(), "token")
	// issue writes a token to the file. The token is valid as long as its Secret exists.
	issue := func(secret string) {
		c.kubectl(t, "create secret generic "+secret+" -n "+team)
		token := c.kubectl(t, "create token robot -n "+team+" --bound-object-kind=Secret --bound-object-name="+secret)
		expect.NoError(t, os.WriteFile(file, []byte(token), 0o600))
	}
	issue("first")
	through := rest.CopyConfig(c.through)
	direct := rest.CopyConfig(c.direct)
	for _, cfg := range []*rest.Config{through, direct} {
		cfg.BearerToken, cfg.BearerTokenFile = "", file
	}
	whileClientsWork(t, through, direct, func() {
		issue("second")
		clock.Sleep(t.Context(), reloadTime)
		c.kubectl(t, "delete secret first -n "+team)
		clock.Sleep(t.Context(), forgetTime)
	})
}

// checkDrain checks that a drain evicts only one of two replicas: the PodDisruptionBudget keeps the other, since no other node
// can take a replacement.
func checkDrain(t *testing.T, c *tester) {
	const drain = "drain node --pod-selector=app.kubernetes.io/name=listproxy --ignore-daemonsets --timeout=20s"
	whileClientsWork(t, c.through, c.direct, func() {
		_, err := c.Kubectl(t.Context(), "", strings.Fields(drain)...)
		if err == nil || !strings.Contains(err.Error(), "disruption budget") {
			t.Errorf("drain: got %v, want an error about the disruption budget", err)
		}
		expect.Same(t, "1", c.kubectl(t, "get deployment listproxy -n listproxy -o jsonpath={.status.readyReplicas}"))
		c.kubectl(t, "uncordon node")
		c.kubectl(t, "rollout status deployment/listproxy -n listproxy --timeout=5m")
	})
}

// checkBypass checks that no client fails while the Service is led past listproxy, and back.
func checkBypass(t *testing.T, c *tester) {
	whileClientsWork(t, c.through, c.direct, func() {
		if notes := c.install(t, "bypass=true"); !strings.Contains(notes, "WARNING: bypass is on") {
			t.Errorf("the notes:\n%s", notes)
		}
		output := c.runPod(t, nil, documentedPod(t, "KUBECONFIG"))
		if strings.Contains(output, "Cache-Status") {
			t.Errorf("the answer is not from kube-apiserver itself:\n%s", output)
		}
		c.install(t)
	})
	c.awaitHit(t, nil, "KUBECONFIG")
}
