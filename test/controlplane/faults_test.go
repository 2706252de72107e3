package controlplane

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/listproxy/listproxy/test/expect"
)

// What is in etcd outlives that it is killed; defragmenting changes nothing; emptying takes all.
func TestEtcdFaults(t *testing.T) {
	long(t)
	cp, err := Start(t.Context(), Options{})
	expect.NoError(t, err)
	t.Cleanup(cp.Stop)
	const path = "/api/v1/namespaces/team-a/configmaps/kept"
	written, err := strconv.ParseInt(createConfigMap(t, cp, "kept"), 10, 64)
	expect.NoError(t, err)
	expect.NoError(t, cp.KillEtcd())
	if err := cp.KillEtcd(); err == nil {
		t.Error("what does not run was killed")
	}
	expect.NoError(t, cp.StartEtcd(t.Context()))
	if code, body := get(t, cp, Admin, path); code != http.StatusOK {
		t.Errorf("after etcd was killed: %d %s", code, body)
	}
	expect.NoError(t, cp.DefragmentEtcd(t.Context()))
	if code, body := get(t, cp, Admin, path); code != http.StatusOK {
		t.Errorf("after etcd was defragmented: %d %s", code, body)
	}
	// Setting up takes revisions of its own: enough are taken here to be seen going back.
	for i := range 300 {
		createConfigMap(t, cp, "more-"+strconv.Itoa(i))
	}
	before, err := cp.EtcdRevision(t.Context())
	expect.NoError(t, err)
	expect.NoError(t, cp.EmptyEtcd(t.Context()))
	if code, body := get(t, cp, Admin, path); code != http.StatusNotFound {
		t.Errorf("after etcd was emptied: %d %s", code, body)
	}
	after, err := cp.EtcdRevision(t.Context())
	expect.NoError(t, err)
	if before < written || after >= before {
		t.Errorf("revision %d after the emptying, %d before", after, before)
	}
	if code, body := get(t, cp, Alice, "/api/v1/namespaces/team-a/pods"); code != http.StatusOK {
		t.Errorf("alice's rights after the emptying: %d %s", code, body)
	}
}
