package controlplane

import (
	"context"
	"fmt"
	"net/http"
	"os"
)

// KillEtcd ends etcd at once (SIGKILL) and waits until it is gone. The API server goes on without
// it: it answers from its watch caches and refuses what needs etcd.
func (cp *ControlPlane) KillEtcd() error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	switch {
	case cp.stopped:
		return errStopped
	case !cp.etcd.alive():
		return fmt.Errorf("etcd: %w", errNotRunning)
	}
	cp.etcd.kill()
	return nil
}

// StartEtcd starts etcd again on its data after it was killed, and returns when it and the API
// server are ready. Where etcd runs already, it only waits for that.
func (cp *ControlPlane) StartEtcd(ctx context.Context) error {
	return cp.starting(ctx, func(ctx context.Context) error {
		if !cp.etcd.alive() {
			if err := cp.startEtcd(ctx); err != nil {
				return err
			}
		}
		return cp.startAPIServer(ctx)
	})
}

// DefragmentEtcd makes etcd write its database anew without the room that compactions left in it.
// etcd answers nothing meanwhile.
func (cp *ControlPlane) DefragmentEtcd(ctx context.Context) error {
	_, err := send(ctx, cp.etcdClient, http.MethodPost, cp.EtcdURL()+"/v3/maintenance/defragment", struct{}{})
	if err != nil {
		return fmt.Errorf("defragment etcd: %w", err)
	}
	return nil
}

// EmptyEtcd ends the API server at once and etcd, removes etcd's data, and starts both again:
// revisions begin anew, and nothing exists but what [Start] creates. Tokens stay valid.
func (cp *ControlPlane) EmptyEtcd(ctx context.Context) error {
	return cp.starting(ctx, func(ctx context.Context) error {
		cp.apiserver.kill()
		cp.etcd.kill()
		if err := os.RemoveAll(cp.etcdData()); err != nil {
			return fmt.Errorf("remove etcd's data: %w", err)
		}
		if err := cp.startBoth(ctx); err != nil {
			return err
		}
		return cp.setUp(ctx)
	})
}
