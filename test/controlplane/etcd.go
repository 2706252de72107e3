package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/test/controlplane/binaries"
	"github.com/listproxy/listproxy/test/harness/ask"
)

// etcdGrace is the time after SIGTERM in which etcd must end. Then it is killed.
const etcdGrace = 10 * time.Second

// compactRevisionKey is the key at which API servers write the revision of a compaction. They read it to forget older states
// of their watch caches (k8s.io/apiserver/pkg/storage/etcd3/compact.go).
const compactRevisionKey = "compact_rev_key"

func (cp *ControlPlane) etcdArgs() []string {
	if cp.kine {
		return []string{
			"--listen-address=" + cp.EtcdURL(), "--metrics-bind-address=0",
			"--endpoint=sqlite://" + cp.etcdData() + ".db?_journal=WAL&cache=shared&_busy_timeout=30000&_txlock=immediate",
		}
	}
	client, peer := cp.EtcdURL(), "http://"+cp.peerPort.address()
	return []string{
		"--name=default",
		"--data-dir=" + filepath.Join(cp.dir, etcdDataFolder),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		"--unsafe-no-fsync",
		"--quota-backend-bytes=8589934592", // 8 GiB: large load tests keep much history
		"--log-level=warn",
	}
}

// startEtcd starts etcd, unless it runs, and waits until it is ready. The caller holds cp.mu.
func (cp *ControlPlane) startEtcd(ctx context.Context) (err error) {
	if !cp.etcd.alive() {
		if cp.etcd, err = startProcess(cp.dir, "etcd", cp.paths.Etcd, cp.etcdArgs()); err != nil {
			return err
		}
	}
	return cp.etcd.await(ctx, "etcd", func(ctx context.Context) error {
		if cp.kine { // kine has no JSON gateway
			conn, err := net.Dial("tcp", cp.etcdPort.address())
			if err == nil {
				err = conn.Close()
			}
			return err
		}
		_, err := cp.askEtcd(ctx, http.MethodGet, "/readyz", nil)
		return err
	})
}

// EtcdRevision returns etcd's current revision.
func (cp *ControlPlane) EtcdRevision(ctx context.Context) (int64, error) {
	a, err := cp.askEtcd(ctx, http.MethodPost, "/v3/kv/range", map[string]any{"key": []byte(compactRevisionKey)})
	if err != nil {
		return 0, fmt.Errorf("read etcd's revision: %w", err)
	}
	var decoded struct {
		Header struct {
			Revision int64 `json:",string"`
		}
	}
	err = json.Unmarshal(a.Body, &decoded)
	return decoded.Header.Revision, err
}

// CompactEtcdAt compacts etcd at a revision, as an API server does: it also writes the revision to [compactRevisionKey],
// which takes one revision more. kube-apiserver reads the key every 15 seconds. Until it has read the key or has restarted,
// its watch cache may answer lists at older exact revisions.
func (cp *ControlPlane) CompactEtcdAt(ctx context.Context, revision int64) error {
	at := strconv.FormatInt(revision, 10)
	announcement := map[string]any{"key": []byte(compactRevisionKey), "value": []byte(at)}
	if _, err := cp.askEtcd(ctx, http.MethodPost, "/v3/kv/put", announcement); err != nil {
		return fmt.Errorf("announce the compaction of etcd at %d: %w", revision, err)
	}
	_, err := cp.askEtcd(ctx, http.MethodPost, "/v3/kv/compaction", map[string]any{"revision": at, "physical": true})
	return err
}

// askEtcd sends a request to etcd's JSON gateway, which expects byte slices in base64, as encoding/json writes
// them. It keeps no connection, which would not survive a restart, and uses no proxy of the environment.
func (cp *ControlPlane) askEtcd(ctx context.Context, method, path string, body any) (ask.Answer, error) {
	client := ask.Client{Base: cp.EtcdURL(), HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	return client.Do(ctx, method, path, body)
}

// An EtcdSnapshot is a copy of all of etcd's data. It lives as long as its control plane.
type EtcdSnapshot struct {
	// Revision is etcd's revision at the time of the copy.
	Revision int64

	dir string
}

// SnapshotEtcd stops the first API server and etcd in order, copies etcd's data, and starts both again.
func (cp *ControlPlane) SnapshotEtcd(ctx context.Context) (snapshot EtcdSnapshot, err error) {
	err = cp.whileRunning(ctx, func(ctx context.Context) (err error) {
		cp.snapshots++
		snapshot.dir = filepath.Join(cp.dir, etcdSnapshotPrefix+strconv.Itoa(cp.snapshots))
		_ = cp.First.Stop() // if it runs
		if snapshot.Revision, err = cp.EtcdRevision(ctx); err != nil {
			return err
		}
		cp.etcd.terminate(etcdGrace)
		if err := os.CopyFS(snapshot.dir, os.DirFS(cp.etcdData())); err != nil {
			return fmt.Errorf("copy etcd's data: %w", err)
		}
		return cp.startBoth(ctx)
	})
	return snapshot, err
}

// RestoreEtcd stops the first API server and etcd, restores the data of a snapshot, and starts both again. Everything that was
// written since the snapshot is gone, and etcd gives the revisions of those writes a second time.
func (cp *ControlPlane) RestoreEtcd(ctx context.Context, snapshot EtcdSnapshot) error {
	return cp.whileRunning(ctx, func(ctx context.Context) error {
		_ = cp.First.Stop() // if it runs
		if err := cp.removeEtcd(); err != nil {
			return err
		}
		if err := os.CopyFS(cp.etcdData(), os.DirFS(snapshot.dir)); err != nil {
			return fmt.Errorf("put etcd's older data back: %w", err)
		}
		return cp.startBoth(ctx)
	})
}

// RestoreEtcdBumped is RestoreEtcd by the program etcdutl, which raises etcd's revision by bump. If bump is larger than the
// number of writes since the snapshot, no revision is given a second time. etcdutl does so only if it marks the history before
// as compacted.
func (cp *ControlPlane) RestoreEtcdBumped(ctx context.Context, etcdutl string, snapshot EtcdSnapshot, bump int64) error {
	return cp.whileRunning(ctx, func(ctx context.Context) error {
		_ = cp.First.Stop() // if it runs
		if err := cp.removeEtcd(); err != nil {
			return err
		}
		peer := "http://" + cp.peerPort.address()
		database := filepath.Join(snapshot.dir, "member", "snap", "db")
		restore := exec.CommandContext(ctx, etcdutl, "snapshot", "restore", database, // #nosec G204 -- a test's
			"--skip-hash-check", "--data-dir="+cp.etcdData(), "--initial-cluster=default="+peer, "--initial-advertise-peer-urls="+peer,
			"--bump-revision="+strconv.FormatInt(bump, 10), "--mark-compacted")
		out, err := restore.CombinedOutput()
		if err != nil {
			return fmt.Errorf("restore etcd: %w: %s", err, binaries.Tail(out))
		}
		return cp.startBoth(ctx)
	})
}

// EmptyEtcd kills the first API server and etcd, removes etcd's data, and starts both again:
// revisions begin anew, and nothing exists but what [Start] creates. Tokens of [Users] stay valid.
func (cp *ControlPlane) EmptyEtcd(ctx context.Context) error {
	return cp.whileRunning(ctx, func(ctx context.Context) error {
		_ = cp.First.Kill() // if it runs
		if err := cp.removeEtcd(); err != nil {
			return err
		}
		if err := cp.startBoth(ctx); err != nil {
			return err
		}
		return cp.setUp(ctx)
	})
}

// KillEtcd ends etcd at once (SIGKILL) and waits until it is gone. The API server goes on without
// it: it answers from its watch caches and refuses what needs etcd.
func (cp *ControlPlane) KillEtcd() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if !cp.etcd.alive() {
		return fmt.Errorf("etcd: %w", errNotRunning)
	}
	cp.etcd.kill()
	return nil
}

// StartEtcd starts etcd and the first API server, unless they run, and returns when both are ready.
func (cp *ControlPlane) StartEtcd(ctx context.Context) error {
	return cp.whileRunning(ctx, cp.startBoth)
}

// DefragmentEtcd makes etcd rewrite its database without the space that compactions have freed.
// etcd answers nothing meanwhile.
func (cp *ControlPlane) DefragmentEtcd(ctx context.Context) error {
	_, err := cp.askEtcd(ctx, http.MethodPost, "/v3/maintenance/defragment", struct{}{})
	return err
}

func (cp *ControlPlane) etcdData() string { return filepath.Join(cp.dir, etcdDataFolder) }

// removeEtcd kills etcd and removes its data.
func (cp *ControlPlane) removeEtcd() error {
	cp.etcd.kill()
	if err := os.RemoveAll(cp.etcdData()); err != nil {
		return fmt.Errorf("remove etcd's data: %w", err)
	}
	return nil
}

// startBoth starts etcd and then the first API server, unless they run. The caller holds cp.mu.
func (cp *ControlPlane) startBoth(ctx context.Context) error {
	if err := cp.startEtcd(ctx); err != nil {
		return err
	}
	return cp.First.Start(ctx)
}
