package results

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lockAt is where the locked byte stands, far behind what the file says of its holder:
// Windows keeps others from reading a locked range.
const lockAt = 1 << 30

// lockFileNow takes an exclusive lock that ends with the process; errHeld where another
// process has it.
func lockFileNow(f *os.File) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &windows.Overlapped{Offset: lockAt})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errHeld
	}
	return err
}
