package filelock_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane/filelock"
	"github.com/listproxy/listproxy/test/expect"
)

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, ok, err := filelock.Try(path)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, ok, err := filelock.Try(path); err != nil || ok {
		t.Fatalf("taken twice: %v, %v", ok, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gaveUp := errors.New("gave up")
	if _, err := filelock.Wait(ctx, path, func() { cancel(gaveUp) }); !errors.Is(err, gaveUp) {
		t.Errorf("waiting that ended: %v", err)
	}
	second, err := filelock.Wait(t.Context(), path, first.Unlock)
	expect.NoError(t, err)
	second.Unlock()
}
