"""What was said before a turn, as it is read for an Offer."""

import asyncio

from support.lanes import message, replicas
from turnlog_server.store.sessions import Sessions


async def test_what_was_written_behind_the_head_that_is_asked_for_is_no_part_of_it(database):
    async with replicas(database) as (lane,):
        session_id = await lane.create(text="first")
        state = (await lane.do(session_id, message("second"))).state
        assert state is not None
        assert state.active is not None
        later = (await lane.do(session_id, message("third"))).state
        assert later is not None

        async def seqs(head: int) -> list[int]:
            assert state.active is not None
            _, others = await Sessions(database).conversation(
                session_id, state.active.trigger_seq, head,
                types=["user.message"], without=[], count=10, size=100_000,
                deadline=asyncio.get_running_loop().time() + 10,
            )  # fmt: skip
            return [seq for seq, _ in others]

        second, third = (turn.trigger_seq for turn in later.queue)
        assert await seqs(state.head_seq) == [second]
        assert await seqs(later.head_seq) == [second, third]
