-- A guess was right, and does not count.
update oncely.sign_in_guess set guesses = guesses - 1 where place = :place and guesses > 0
